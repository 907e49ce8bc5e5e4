"""Preemption: which running pods have to go so that a pod or a whole group fits. Pure decisions.

`pods` follows kube-scheduler's DefaultPreemption for single pods; `groups` finds the least disruptive victim set for a
group and says whether that is proved.
"""
