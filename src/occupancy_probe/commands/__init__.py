"""One module per stage of the command line: read inputs, call one room, write its record.

A command is a module here with ``HELP``, ``add_arguments(parser)`` and ``run(options)``; ``STUDY = False``
where it takes no study. Rooms are imported inside ``run``: torch and triton cost more than most stages.
"""
