"""Config keys that tell Triton how to launch a kernel, as against the kernel's own meta-parameters."""

LAUNCH_OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg"})
"""What a study's config may set beside what its baseline names."""

CONFIG_OPTIONS = LAUNCH_OPTIONS | {"ir_override"}
"""What a ``triton.Config`` keeps beside its meta-parameters."""
