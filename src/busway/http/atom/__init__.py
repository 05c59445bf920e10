"""Management over HTTP: entities, rules and the namespace as Atom documents (http.md 2 to 8).

`operations` is what `server` calls. Below it: `resources` says what can be done to each kind of
thing, `descriptions` is the table of their elements, `rules` and `access_rules` are the parts with
a shape of their own, `feeds` is the envelope, `reading` and `markup` are the XML itself.
"""
