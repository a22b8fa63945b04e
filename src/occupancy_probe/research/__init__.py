"""Research: compile every config for every target without a GPU, and judge what came out."""
