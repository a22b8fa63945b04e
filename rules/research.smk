"""Research: what every arm becomes on every target, without a GPU.

Needs: trace.json and the kernel's folder.
Makes: feasibility/<target>/<arm>.json (kept while they are fresh, so a changed arm costs its own
compiles), feasibility/<target>.json over them, feasibility.json over all targets; with a
GPU driver/<device>.json.
"""


rule compile_target:
    """Compile every arm for one target, out of process, and judge it by the target's limits."""
    input:
        study=study_file,
        trace="results/{study}/trace.json",
    output:
        "results/{study}/feasibility/{target}.json",
    log:
        "results/{study}/logs/compile_{target}.log",
    threads: workflow.cores
    params:
        arms=lambda wildcards: probe.compile_digest(
            STUDIES[wildcards.study], wildcards.target
        ),
    shell:
        "python -m occupancy_probe compile {input.study:q} --results results/{wildcards.study}"
        " --target {wildcards.target:q} --workers {threads} 2> >(tee {log:q} >&2)"


rule require_fit:
    """One line per target; fails where an arm of the study's `must_fit` does not fit."""
    input:
        study=study_file,
        matrix=lambda wildcards: expand(
            "results/{{study}}/feasibility/{target}.json", target=targets_of(wildcards)
        ),
    output:
        "results/{study}/feasibility.json",
    log:
        "results/{study}/logs/require_fit.log",
    shell:
        "python -m occupancy_probe require_fit {input.study:q}"
        " --results results/{wildcards.study} 2> >(tee {log:q} >&2)"


rule compare_driver:
    """Registers, shared memory and CTAs per SM of every fitting arm, as the driver says them."""
    input:
        study=study_file,
        trace="results/{study}/trace.json",
        matrix=expand(
            "results/{{study}}/feasibility/{target}.json",
            target=probe.device_targets(),
        ),
    output:
        "results/{study}/driver/{device}.json",
    log:
        "results/{study}/logs/driver_{device}.log",
    resources:
        gpu=1,
    params:
        code=probe.digest_sources("launch", "research", "gpu"),
    shell:
        "python -m occupancy_probe compare_driver {input.study:q}"
        " --results results/{wildcards.study} 2> >(tee {log:q} >&2)"


rule feasibility:
    """Target: the feasibility matrix of every selected study, and its `must_fit` met."""
    input:
        expand("results/{study}/feasibility.json", study=STUDIES),
        [drift for study in STUDIES for drift in drift_files(study)],


rule driver_check:
    """Target: feasibility held against the driver of the GPU here."""
    input:
        expand(
            "results/{study}/driver/{device}.json",
            study=STUDIES,
            device=DEVICE or "no-gpu",
        ),
