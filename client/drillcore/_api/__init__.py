"""What a server can be asked for. Each module holds one service of the protocol: its data, its messages, its calls.

A function that is named like a call makes no call: it returns the `Call`, `Upload` or `Follow` that `Client` and
`AsyncClient` carry out. `request_id` names the request, so that a repeated write takes effect once; by default the
client makes a new one. `timeout_s` replaces the client's timeout. `page_size` 0 leaves the size to the server.
"""
