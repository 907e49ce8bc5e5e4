"""Jobs and CronJobs, the groups of Jobs, and what clears them away."""
