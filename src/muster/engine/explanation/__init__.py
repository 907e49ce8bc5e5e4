"""What-if: single changes of a cluster or of a group with which the group would fit, each decided before it is told."""
