"""Controllers: each a pure reconcile function (state, now) to actions, and one runner that executes them."""
