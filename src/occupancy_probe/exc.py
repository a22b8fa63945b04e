"""Errors that a user can act on: each message names the place, the fault and the remedy."""


class ProbeError(Exception):
    """Base of every error that the command line prints as one line, with exit status 2."""


class StudyError(ProbeError):
    """A study file is wrong: unknown key, conflicting rules, bad expression."""


class ProblemError(ProbeError):
    """A kernel or its Problem cannot be loaded or does not keep the contract."""


class RecordError(ProbeError):
    """A record is truncated, of another schema, or does not belong to this study."""


class RepositoryError(ProbeError):
    """Git cannot do what a stage needs: no repository, no identity, uncommitted inputs."""


class DeviceError(ProbeError):
    """A stage that needs a GPU found none, or one that does not match."""


class ForceError(ProbeError):
    """A config cannot be forced: unknown kernel, unknown parameter, or it does not fit."""
