"""Cycles in a directed graph: one for each strongly connected component with more than one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set


def cycles(edges: Mapping[int, Set[int]]) -> Iterator[list[int]]:
    """A shortest cycle of each component, as its nodes in order, the first one again at the end.

    :param edges: by node, the nodes to which its edges lead. Edges of a node to itself are ignored.
    """
    for component in _components(edges):
        if len(component) > 1:
            yield _shortest_cycle(edges, component)


def _components(edges: Mapping[int, Set[int]]) -> Iterator[set[int]]:
    """The strongly connected components, by Kosaraju's algorithm without recursion."""
    backward: dict[int, set[int]] = {}
    for node, targets in edges.items():
        for target in targets:
            backward.setdefault(target, set()).add(node)
    seen: set[int] = set()
    finished: list[int] = []
    for root in sorted(edges):
        if root in seen:
            continue
        seen.add(root)
        stack = [(root, iter(sorted(edges[root])))]
        while stack:
            node, targets = stack[-1]
            following = next((target for target in targets if target not in seen), None)
            if following is None:
                finished.append(node)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(sorted(edges.get(following, ())))))
    taken: set[int] = set()
    for root in reversed(finished):
        if root in taken:
            continue
        component, left = {root}, [root]
        while left:
            for source in backward.get(left.pop(), ()):
                if source not in taken and source not in component:
                    component.add(source)
                    left.append(source)
        taken |= component
        yield component


def _shortest_cycle(edges: Mapping[int, Set[int]], component: set[int]) -> list[int]:
    """A shortest cycle through the smallest node of a component."""
    start = min(component)
    paths = {start: [start]}
    left = [start]
    for node in left:
        for target in sorted(edges.get(node, set()) & component):
            if target == start and node != start:
                return [*paths[node], start]
            if target not in paths:
                paths[target] = [*paths[node], target]
                left.append(target)
    raise AssertionError("the component is not strongly connected")
