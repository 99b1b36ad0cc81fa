"""Right answers to the canary's questions, plain."""

RIGHT = {
    "is_palindrome": """\
def is_palindrome(s):
    kept = [c.lower() for c in s if c.isalnum()]
    return kept == kept[::-1]
""",
    "two_sum": """\
def two_sum(nums, target):
    seen = {}
    for i, n in enumerate(nums):
        if target - n in seen:
            return [seen[target - n], i]
        seen[n] = i
    return []
""",
    "binary_search": """\
def binary_search(items, wanted):
    low, high = 0, len(items) - 1
    while low <= high:
        middle = (low + high) // 2
        if items[middle] == wanted:
            return middle
        if items[middle] < wanted:
            low = middle + 1
        else:
            high = middle - 1
    return -1
""",
    "valid_parens": """\
def valid_parens(s):
    pairs, stack = {")": "(", "]": "[", "}": "{"}, []
    for c in s:
        if c in pairs:
            if not stack or stack.pop() != pairs[c]:
                return False
        else:
            stack.append(c)
    return not stack
""",
    "merge_intervals": """\
def merge_intervals(intervals):
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged
""",
    "fib": """\
def fib(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
""",
    "longest_common_prefix": """\
def longest_common_prefix(strs):
    if not strs:
        return ''
    low, high = min(strs), max(strs)
    for i, c in enumerate(low):
        if c != high[i]:
            return low[:i]
    return low
""",
    "group_anagrams": """\
def group_anagrams(words):
    groups = {}
    for word in words:
        groups.setdefault(''.join(sorted(word)), []).append(word)
    return list(groups.values())
""",
}
WORDS = {
    "arithmetic": "354",
    "primes": "2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47",
    "long_needle": "73914",
}


def fenced(code: str) -> str:
    """As most models answer."""
    return f"```python\n{code}```\n"


ALL = {**{task: fenced(code) for task, code in RIGHT.items()}, **WORDS, "long_code": fenced(RIGHT["two_sum"])}
