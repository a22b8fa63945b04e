"""Research: what every arm becomes on every target, without a GPU.

Needs: trace.json and the kernel's folder.
Makes: feasibility/<target>/<arm>.json (kept while they are fresh, so a changed arm costs its own
compiles), feasibility/<target>.json over them, feasibility.json over all targets; with a
GPU driver/<device>.json.
"""

# One job for all targets of a study: processes start once, and targets' compiles follow without a gap.
for name, study in STUDIES.items():

    rule:
        """Compile every arm for every target, out of process, and judge it by the target's limits."""
        name:
            f"matrix_of_{name}"
        input:
            study=str(study.path),
            trace=f"results/{name}/trace.json",
        output:
            [f"results/{name}/feasibility/{t}.json" for t in study.file.targets],
        log:
            f"results/{name}/logs/compile.log",
        threads: workflow.cores
        params:
            results=lambda wildcards, input: Path(input.trace).parent,
            made_from=probe.compile_digest(study),
        shell:
            "python -m occupancy_probe compile {input.study:q} --results {params.results:q}"
            " --workers {threads} 2> >(tee {log:q} >&2)"


rule summarize_targets:
    """The matrix for machines, and one line per target."""
    input:
        study=study_file,
        matrix=lambda wildcards: expand(
            "results/{{study}}/feasibility/{target}.json", target=targets_of(wildcards)
        ),
    output:
        "results/{study}/feasibility.json",
    log:
        "results/{study}/logs/summarize.log",
    shell:
        "python -m occupancy_probe summarize {input.study:q}"
        " --results results/{wildcards.study} 2> >(tee {log:q} >&2)"


rule require_fit:
    """Fails where an arm of the study's `must_fit` does not fit; what machines read stays."""
    input:
        study=study_file,
        summary="results/{study}/feasibility.json",
    output:
        touch("results/{study}/must_fit_met"),
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
        matrix=device_matrix,
    output:
        "results/{study}/driver/{device}.json",
    log:
        "results/{study}/logs/driver_{device}.log",
    resources:
        gpu=1,
    params:
        code=probe.digest_sources("launch", "research", "gpu"),
        asking=probe.digest_sources(
            "execute/driver_compile_worker.py",
            "execute/driver_figures.py",
            "execute/driver_worker.py",
        ),
    shell:
        "python -m occupancy_probe compare_driver {input.study:q}"
        " --results results/{wildcards.study} 2> >(tee {log:q} >&2)"


rule feasibility:
    """Target: the feasibility matrix of every selected study, and its `must_fit` met."""
    input:
        matrices_that_fit(),
        [drift for study in STUDIES for drift in drift_files(study)],


rule driver_check:
    """Target: feasibility held against the driver of the GPU here."""
    input:
        expand(
            "results/{study}/driver/{device}.json",
            study=STUDIES,
            device=DEVICE or "no-gpu",
        ),
