# Name to code, description, type of the parameter (`NoneType` for none) and description of the parameter.
_Options = dict[str, tuple[int, str, type, str | None]]

NetworkOption: _Options
DatabaseOption: _Options
TransactionOption: _Options
StreamingMode: _Options
MutationType: _Options
