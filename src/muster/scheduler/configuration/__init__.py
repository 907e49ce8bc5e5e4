"""KubeSchedulerConfiguration: the file as kube-scheduler reads it."""
