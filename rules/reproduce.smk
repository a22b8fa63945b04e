"""Reproduce: past revisions tried again, and the studies that there are.

Needs: the repository's history (a clone of any depth), and nothing that earlier stages made.
Makes: nothing that another rule uses; results/reproduce/<commit>/ holds a record, a log and, with
env=locked, an environment. The user's work tree, index and branch stay as they are.
"""


rule reproduce:
    """Target: `--config rev=REVISION` in a work tree of its own; fails unless it is reproduced."""
    log:
        f"results/reproduce/logs/{probe.file_name(REVISION)}.log",
    params:
        revision=REVISION,
        study=next(iter(STUDIES), ""),
        env=OPTIONS.env,
        repository=OPTIONS.repository or ".",
        workflow=f"{workflow.basedir}/Snakefile",
    shell:
        "python -m occupancy_probe reproduce {params.revision:q} --study={params.study:q}"
        " --env {params.env:q} --repository {params.repository:q} --workflow {params.workflow:q}"
        " 2> >(tee {log:q} >&2)"


rule check_drift:
    """Hold the published feasibility against this environment's; fails if a verdict is another."""
    input:
        study=study_file,
        report="results/{study}/report.html",
    output:
        touch("results/{study}/drift_checked"),
    log:
        "results/{study}/logs/drift.log",
    shell:
        "python -m occupancy_probe check_drift {input.study:q} --results results/{wildcards.study}"
        " 2> >(tee {log:q} >&2)"


rule studies:
    """Target: a table of studies and their past commits."""
    log:
        "results/reproduce/logs/studies.log",
    params:
        repository=OPTIONS.repository or ".",
    shell:
        "python -m occupancy_probe studies --repository {params.repository:q} 2> >(tee {log:q} >&2)"
