"""From records to a verdict: statistics, what is there, the decision rule, conclusions."""
