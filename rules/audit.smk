"""Audit: what the autotuner around the kernel does, and the outcome as code.

Needs: the study, its kernel's folder and the feasibility matrix; for the exports the verdict; for real
autotune runs a GPU.
Makes: audit.json, exports/ and autotune/<device>.json.
"""


rule audit_autotuner:
    """Rehearse the kernel's own autotuner on the launches that the study makes."""
    input:
        study=study_file,
        kernel=kernel_files,
        matrix=lambda wildcards: expand(
            "results/{{study}}/feasibility/{target}.json", target=targets_of(wildcards)
        ),
    output:
        "results/{study}/audit.json",
    log:
        "results/{study}/logs/audit.log",
    params:
        study=lambda wildcards: probe.study_digest(STUDIES[wildcards.study]),
        code=probe.digest_sources("launch", "research"),
    shell:
        "python -m occupancy_probe audit {input.study:q} --results results/{wildcards.study}"
        " 2> >(tee {log:q} >&2)"


rule export_outcome:
    """The winner as triton.Config, as an autotune list, as autotune cache; the warm-up calls."""
    input:
        study=study_file,
        verdict="results/{study}/verdict.json",
    output:
        "results/{study}/exports/README.md",
    log:
        "results/{study}/logs/export.log",
    params:
        code=probe.digest_sources("validate/autotune_cache.py", "validate/exports.py"),
    shell:
        "python -m occupancy_probe export {input.study:q} --results results/{wildcards.study}"
        " 2> >(tee {log:q} >&2)"


rule run_autotuner:
    """Real first calls of the kernel in fresh processes: which config wins, how often."""
    input:
        study=ancient(study_file),
    output:
        "results/{study}/autotune/{device}.json",
    log:
        "results/{study}/logs/autotune_{device}.log",
    threads: workflow.cores
    resources:
        gpu=1,
    params:
        runs=OPTIONS.runs,
    shell:
        "python -m occupancy_probe autotune_runs {input.study:q} --results results/{wildcards.study}"
        " --runs {params.runs} 2> >(tee {log:q} >&2)"


rule audit:
    """Target: the autotune audit of every selected study."""
    input:
        expand("results/{study}/audit.json", study=STUDIES),


rule export:
    """Target: the outcome of every selected study as code."""
    input:
        expand("results/{study}/exports/README.md", study=STUDIES),


rule autotune_runs:
    """Target: real autotune runs on the GPU here."""
    input:
        expand(
            "results/{study}/autotune/{device}.json",
            study=STUDIES,
            device=DEVICE or "no-gpu",
        ),
