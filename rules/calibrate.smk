"""Calibrate: the harness against itself, of no study.

Needs: a GPU.
Makes: results/calibration/<device>.json, its error rate and power there, with the raw samples beside it.
"""


rule calibrate_harness:
    """100 A/A trials and the power at 1 % and 0.5 %, on a kernel of known cost."""
    output:
        "results/calibration/{device}.json",
    log:
        "results/calibration/logs/{device}.log",
    threads: probe.cores_per_gpu(workflow.cores)
    resources:
        gpu=1,
    params:
        kernels=f"{workflow.basedir}/kernels",
    shell:
        "python -m occupancy_probe calibrate --kernels {params.kernels:q}"
        " --results results/calibration 2> >(tee {log:q} >&2)"


rule calibrate:
    """Target: error rate and power of the harness on the GPU here."""
    input:
        f"results/calibration/{DEVICE or 'no-gpu'}.json",
