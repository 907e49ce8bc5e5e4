"""The greedy group cycle of kube-scheduler: what it does with a group, pod by pod, by the rules of 1.36.3 or 1.37.2.

For parity (`--placement upstream-1.36|upstream-1.37`), as the baseline of benches, and as a reference in tests. Filters
and scores are those of all other decisions; only the order of work is upstream's: no backtracking, one placement after
the other, the best-scored node each time. All nodes are looked at (`percentageOfNodesToScore: 100`). What upstream
leaves to chance is a `Choices`; by default the first of what is equal is taken.

Sources: `schedule_one_podgroup.go`, `plugins/gangscheduling`, `plugins/topologyaware`, `framework/preemption` of those
releases, and recordings of both (workload-scheduling.md 1, 2).
"""
