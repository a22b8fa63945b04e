"""Environments: the same matrix under another Triton, and what is different.

Needs: an environment that the study names under `environments`, or `--config triton=PLACE`.
Makes: trace@<name>.json, feasibility@<name>/… as the like of what this Triton makes, and
drift@<name>.json and .txt: registers, shared memory, CTAs per SM, verdict and code, from → to.
"""


rule trace_under:
    """Note every launch with the binder of the other Triton."""
    input:
        study=study_file,
        kernel=kernel_files,
    output:
        "results/{study}/trace@{environment}.json",
    log:
        "results/{study}/logs/trace@{environment}.log",
    params:
        place=place_of,
        made_from=environment_digest,
    shell:
        "python -m occupancy_probe under {params.place:q} trace {input.study:q}"
        " --results results/{wildcards.study} --environment {wildcards.environment:q}"
        " 2> >(tee {log:q} >&2)"


rule compile_under:
    """Compile every arm for one target with the other Triton, and judge it."""
    input:
        study=study_file,
        trace="results/{study}/trace@{environment}.json",
    output:
        "results/{study}/feasibility@{environment}/{target}.json",
    log:
        "results/{study}/logs/compile@{environment}_{target}.log",
    threads: workflow.cores
    params:
        place=place_of,
        made_from=environment_digest,
    shell:
        "python -m occupancy_probe under {params.place:q} compile {input.study:q}"
        " --results results/{wildcards.study} --environment {wildcards.environment:q}"
        " --target {wildcards.target:q} --workers {threads} 2> >(tee {log:q} >&2)"


rule compare_environment:
    """Both matrices side by side."""
    input:
        study=study_file,
        here=lambda wildcards: expand(
            "results/{{study}}/feasibility/{target}.json", target=targets_of(wildcards)
        ),
        there=lambda wildcards: expand(
            "results/{{study}}/feasibility@{{environment}}/{target}.json",
            target=targets_of(wildcards),
        ),
    output:
        "results/{study}/drift@{environment}.json",
    log:
        "results/{study}/logs/drift@{environment}.log",
    params:
        code=probe.digest_sources("research/drift.py"),
    shell:
        "python -m occupancy_probe drift {input.study:q} --results results/{wildcards.study}"
        " --environment {wildcards.environment:q} 2> >(tee {log:q} >&2)"


rule drift:
    """Target: what another Triton makes of every arm of every selected study."""
    input:
        [drift for study in STUDIES for drift in drift_files(study)],
