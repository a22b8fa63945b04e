"""Plan: freeze a study, render its document, commit both before anything is measured."""
