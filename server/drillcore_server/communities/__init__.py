"""Communities of facts: the graph of nearest neighbours and the Leiden algorithm on it, in a process of its own.

    vectors in the order of fact ids -> worker: nearest -> graph -> leiden -> a community, or none, for each fact

The result is a function of the facts alone: of their ids, their vectors and the parameters, never of their history.
"""
