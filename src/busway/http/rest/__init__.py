"""REST messaging: a message sent or received with one HTTP request (http.md section 9).

`room` finds the operation and asks for its right; `sending`, `receiving` and `settling` do the
work with what links use, too; `messages` and `values` own how a message looks in HTTP.
"""
