"""The commands of the service: arguments and printing only. The command `invariant-bandits` finds them."""
