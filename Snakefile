# The Occupancy Probe: plan → research → execute → validate, for one or more studies.
#
#   snakemake ab_report                        the flagship study, as far as this machine can
#   snakemake ab_report --config study=NAME    another one (a name in studies/, or a path; commas)


container: "docker://python:3.11"


include: "rules/common.smk"
include: "rules/plan.smk"
include: "rules/research.smk"
include: "rules/audit.smk"
include: "rules/environments.smk"
include: "rules/execute.smk"
include: "rules/calibrate.smk"
include: "rules/validate.smk"
include: "rules/paste.smk"
include: "rules/reproduce.smk"


for extra in extra_rules():

    include: extra


rule ab_report:
    """The A/B report of every selected study."""
    default_target: True
    input:
        expand("results/{study}/report.html", study=STUDIES),
        drift_gates(),
