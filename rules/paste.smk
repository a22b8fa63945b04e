"""Paste: the answer for people and for other tools; and a real server under every arm.

Needs: the verdict; for the server the committed plan, right arms and a GPU.
Makes: exports/pull_request.md and, per device, exports/<device>/ (T4, NVBench JSON, CSV);
serving/<device>/<workload>.json with an index beside the folder. The server's commands are the study's
own and run as you, so no other target asks for them.
"""


rule paste_outcome:
    """A pull request's text, and the raw samples in the formats of other tools."""
    input:
        study=study_file,
        verdict="results/{study}/verdict.json",
        templates=probe.template_files(TEMPLATES),
    output:
        "results/{study}/exports/pull_request.md",
    log:
        "results/{study}/logs/paste.log",
    params:
        code=probe.digest_sources("validate", "templating.py"),
        published=lambda wildcards: probe.published_stamps(STUDIES[wildcards.study]),
        templates=lambda wildcards, input: Path(input.templates[0]).parent,
    shell:
        "python -m occupancy_probe paste {input.study:q} --results results/{wildcards.study}"
        " --templates {params.templates:q} 2> >(tee {log:q} >&2)"


rule serve_arms:
    """Tokens per second of the study's server, arm by arm, restart by restart."""
    input:
        study=ancient(study_file),
        plan="results/{study}/plan_commit.json",
        correctness="results/{study}/correctness/{device}.json",
    output:
        "results/{study}/serving/{device}.json",
    log:
        "results/{study}/logs/serve_{device}.log",
    threads: workflow.cores
    resources:
        gpu=1,
    params:
        arms=OPTIONS.arms,
    shell:
        "python -m occupancy_probe serve {input.study:q} --results results/{wildcards.study}"
        " --arms={params.arms:q} 2> >(tee {log:q} >&2)"


rule paste:
    """Target: what people paste, for every selected study."""
    input:
        expand("results/{study}/exports/pull_request.md", study=STUDIES),


rule serve:
    """Target: a real server under every right arm of the selected studies."""
    input:
        lambda wildcards: probe.serving_indexes(STUDIES, DEVICE),
