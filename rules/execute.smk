"""Execute: correctness first, then timing.

Needs: the feasibility matrix of the device's target; for timing also the committed plan.
Makes: correctness/<device>/<arm>.json, measurement/<device>/<workload>.json, confirmation/<device>/… and
dose/<device>/<arm>.json (kept while they are fresh), each with an index beside its folder. Without a
GPU the device is Triton's interpreter, which proves logic only, and nothing is timed.
"""


rule check_arms:
    """Every arm that fits against float64; in the interpreter every distinct tile."""
    input:
        study=ancient(study_file),
        matrix=device_matrix,
    output:
        "results/{study}/correctness/{device}.json",
    log:
        "results/{study}/logs/check_{device}.log",
    resources:
        gpu=1 if DEVICE else 0,
    params:
        checks=lambda wildcards: probe.check_digest(STUDIES[wildcards.study]),
    shell:
        "python -m occupancy_probe check {input.study:q} --results results/{wildcards.study}"
        " --device {wildcards.device:q} 2> >(tee {log:q} >&2)"


rule measure_arms:
    """Replicates of every right arm on every workload; nothing else runs beside it."""
    input:
        study=ancient(study_file),
        plan="results/{study}/plan_commit.json",
        correctness="results/{study}/correctness/{device}.json",
    output:
        "results/{study}/measurement/{device}.json",
    log:
        "results/{study}/logs/measure_{device}.log",
    threads: probe.cores_per_gpu(workflow.cores)
    resources:
        gpu=1,
    params:
        plan=lambda wildcards: probe.measure_digest(STUDIES[wildcards.study]),
    shell:
        "python -m occupancy_probe measure {input.study:q} --results results/{wildcards.study}"
        " 2> >(tee {log:q} >&2)"


rule measure_doses:
    """The same binary at 1, 2 … CTAs per SM, for the arms of the study's `dose` section."""
    input:
        study=ancient(study_file),
        plan="results/{study}/plan_commit.json",
        correctness="results/{study}/correctness/{device}.json",
        matrix=lambda wildcards: expand(
            "results/{{study}}/feasibility/{target}.json", target=targets_of(wildcards)
        ),
    output:
        "results/{study}/dose/{device}.json",
    log:
        "results/{study}/logs/dose_{device}.log",
    threads: probe.cores_per_gpu(workflow.cores)
    resources:
        gpu=1,
    params:
        plan=lambda wildcards: probe.measure_digest(STUDIES[wildcards.study]),
    shell:
        "python -m occupancy_probe dose {input.study:q} --results results/{wildcards.study}"
        " 2> >(tee {log:q} >&2)"


rule correctness:
    """Target: correctness on the GPU here, or in the interpreter."""
    input:
        expand(
            "results/{study}/correctness/{device}.json",
            study=STUDIES,
            device=CHECKED_ON,
        ),


rule measure:
    """Target: timing on the GPU here, doses included."""
    input:
        expand(
            "results/{study}/measurement/{device}.json",
            study=STUDIES,
            device=DEVICE or "no-gpu",
        ),
        [
            f"results/{s.name}/dose/{DEVICE or 'no-gpu'}.json"
            for s in STUDIES.values()
            if s.file.dose
        ],
