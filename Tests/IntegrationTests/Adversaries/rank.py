"""How much of an order shows in another one."""


def correlation(first, second):
    """Spearman's: 1 when both lists have their common members in one order, -1 in opposite ones, about 0 when neither tells of the other.
    By chance alone its size is seldom above 3 / sqrt(n)."""
    common = set(first) & set(second)
    one = {member: rank for rank, member in enumerate(member for member in dict.fromkeys(first) if member in common)}
    other = {member: rank for rank, member in enumerate(member for member in dict.fromkeys(second) if member in common)}
    n = len(common)
    assert n > 30, f"{n} are too few to tell"
    return 1 - 6 * sum((one[member] - other[member]) ** 2 for member in common) / (n * (n * n - 1))
