"""The scheduler service: watch, queue, cycle, bind. Speaks to an API server through a client and to nothing else."""
