"""What an audit trail is made of, and how to verify one without trusting the server that keeps it.

leaves     a record's leaf: what is signed, and what the tree is made of
merkle     RFC 6962: hashes, inclusion and consistency proofs
"""
