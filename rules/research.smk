"""Research: what every arm becomes on every target, without a GPU.

Needs: trace.json and the kernel's folder.
Makes: feasibility/<target>/<arm>.json (kept while they are fresh, so a changed arm costs its own
compiles), feasibility/<target>.json over them, audit.json.
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


rule audit_autotuner:
    """Hold the autotuner's key against the launches that the study makes."""
    input:
        study=study_file,
        trace="results/{study}/trace.json",
    output:
        "results/{study}/audit.json",
    log:
        "results/{study}/logs/audit.log",
    params:
        code=probe.digest_sources("research/audit.py"),
    shell:
        "python -m occupancy_probe audit {input.study:q} --results results/{wildcards.study}"
        " 2> >(tee {log:q} >&2)"


rule feasibility:
    """Target: the feasibility matrix of every selected study."""
    input:
        [
            f"results/{s.name}/feasibility/{t}.json"
            for s in STUDIES.values()
            for t in s.file.targets
        ],


rule audit:
    """Target: the autotune audit of every selected study."""
    input:
        expand("results/{study}/audit.json", study=STUDIES),
