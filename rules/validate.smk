"""Validate: statistics, verdict by the plan's rule, document and report.

Needs: everything the earlier stages made here, and the published evidence of other devices.
Makes: verdict.json, report.html and, under version control, the document with its table filled and
its charts (dose-<device>.svg, step-<device>.svg) beside it.
"""


rule judge_arms:
    """Ratios, intervals, verdicts and the decision, per device."""
    input:
        study=study_file,
        plan="results/{study}/plan_commit.json",
        audit="results/{study}/audit.json",
        matrix=lambda wildcards: expand(
            "results/{{study}}/feasibility/{target}.json", target=targets_of(wildcards)
        ),
        here=records_here,
        evidence=lambda wildcards: probe.evidence_files(wildcards.study),
        step=lambda wildcards: probe.step_files(STUDIES[wildcards.study]),
    output:
        "results/{study}/verdict.json",
    log:
        "results/{study}/logs/judge.log",
    params:
        code=probe.digest_sources("validate", "study", "gpu"),
    shell:
        "python -m occupancy_probe judge {input.study:q} --results results/{wildcards.study}"
        " 2> >(tee {log:q} >&2)"


rule render_report:
    """One HTML file, and the document with its table filled."""
    input:
        study=study_file,
        environments=lambda wildcards: drift_files(wildcards.study),
        verdict="results/{study}/verdict.json",
        templates=probe.template_files(TEMPLATES),
    output:
        report("results/{study}/report.html", category="A/B report"),
    log:
        "results/{study}/logs/report.log",
    params:
        code=probe.digest_sources("validate", "plan", "templating.py"),
        templates=lambda wildcards, input: Path(input.templates[0]).parent,
    shell:
        "python -m occupancy_probe report {input.study:q} --results results/{wildcards.study}"
        " --templates {params.templates:q} 2> >(tee {log:q} >&2)"


rule publish_evidence:
    """Commit a device's records and the filled document."""
    input:
        study=study_file,
        records=records_to_publish,
    output:
        "results/{study}/published/{device}.json",
    log:
        "results/{study}/logs/publish_{device}.log",
    resources:
        git=1,
    params:
        templates=TEMPLATES,
    shell:
        "python -m occupancy_probe publish {input.study:q} --results results/{wildcards.study}"
        " --templates {params.templates:q} --device {wildcards.device:q} 2> >(tee {log:q} >&2)"


rule publish:
    """Target: this device's evidence, or that of `--config device=…`, committed."""
    input:
        expand(
            "results/{study}/published/{device}.json",
            study=STUDIES,
            device=OPTIONS.device or DEVICE or "no-gpu",
        ),
