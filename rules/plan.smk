"""Plan: from a study to a committed plan.

Needs: the study file, its kernel's folder, templates/.
Makes: trace.json (every launch, uncompiled), plan_commit.json (where the plan stands in history) and,
under version control, plan.json and the plan document. The last two are nobody's declared output:
Snakemake deletes outputs before a job, and what is committed must never be lost.
"""


rule trace_launches:
    """Note every launch that the study makes, for every target; nothing is compiled."""
    input:
        study=study_file,
        kernel=kernel_files,
    output:
        "results/{study}/trace.json",
    log:
        "results/{study}/logs/trace.log",
    params:
        study=lambda wildcards: probe.study_digest(STUDIES[wildcards.study]),
        code=probe.digest_sources("launch", "study", "gpu"),
    shell:
        "python -m occupancy_probe trace {input.study:q} --results results/{wildcards.study}"
        " 2> >(tee {log:q} >&2)"


rule commit_plan:
    """Render the plan and see that a commit holds it, before anything is measured."""
    input:
        study=study_file,
        trace="results/{study}/trace.json",
    output:
        "results/{study}/plan_commit.json",
    log:
        "results/{study}/logs/plan.log",
    resources:
        git=1,
        why=OPTIONS.amend,  # no parameter: a reason is no reason to run again
    params:
        study=lambda wildcards: probe.study_digest(STUDIES[wildcards.study]),
        commit="" if OPTIONS.commit else "--no-commit",
        dirty="--allow-dirty" if OPTIONS.allow_dirty else "",
        templates=TEMPLATES,
    shell:
        "python -m occupancy_probe plan {input.study:q} --results results/{wildcards.study}"
        " --templates {params.templates:q} {params.commit} {params.dirty}"
        " --amend={resources.why:q}"
        " 2> >(tee {log:q} >&2)"


rule plan:
    """Target: the committed plan of every selected study."""
    input:
        expand("results/{study}/plan_commit.json", study=STUDIES),
