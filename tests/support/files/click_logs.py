"""One page of results and its clicks, in each format of click logs, and the page that they become.

The records are of the forms that o19s/ubi (schema 1.3.0, Apache 2.0) and metarank/metarank (doc/event-schema.md, Apache
2.0) publish; their values are ours.
"""

from __future__ import annotations

UBI = """
{"application":"primary-search","query_id":"q-1","client_id":"c-1","user_query":"red shirt","object_id_field":"sku","timestamp":"2026-11-22T16:32:11Z","query_attributes":{"item":"i0"},"query_response_id":"r-1","query_response_hit_ids":["i3","i7","i9","i12"]}
{"action_name":"impression","query_id":"q-1","client_id":"c-1","timestamp":"2026-11-22T16:32:12Z","message_type":"QUERY","event_attributes":{"object":{"object_id":"i3","object_id_field":"sku"},"position":{"ordinal":1}}}
{"action_name":"click","query_id":"q-1","client_id":"c-1","timestamp":"2026-11-22T16:32:14+00:00","message_type":"CONVERSION","message":"i7","event_attributes":{"object":{"object_id":"i7","object_id_field":"sku","object_id_type":"product"},"position":{"ordinal":2}}}
{"action_name":"add_to_cart","query_id":"q-1","timestamp":"2026-11-22T16:33:14Z","event_attributes":{"object":{"object_id":9},"position":{"ordinal":3}}}
{"_index":"ubi_queries","_source":{"query_id":"q-2","user_query":"cup","timestamp":"2026-11-22T16:32:11","query_attributes":{"item":"i1"},"query_response_hit_ids":["i4","i5"]}}
"""  # noqa: E501
METARANK = """
{"event":"item","id":"e-1","timestamp":"1790000000000","item":"i3","fields":[{"name":"title","value":"red shirt"}]}
{"event":"ranking","id":"r-1","timestamp":"1790000001000","user":"u-1","session":"s-1","fields":[{"name":"query","value":"i0"},{"name":"source","value":"search"}],"items":[{"id":"i3","fields":[{"name":"relevancy","value":2.0}]},{"id":"i7"},{"id":"i9"},{"id":"i12"}]}
{"event":"interaction","id":"e-2","ranking":"r-1","timestamp":"1790000002000","user":"u-1","session":"s-1","type":"click","item":"i7","fields":[]}
{"event":"interaction","id":"e-3","timestamp":"1790000003000","user":"u-1","session":"s-1","type":"click","item":"i9"}
{"event":"interaction","id":"e-4","ranking":"r-1","timestamp":"1790000003000","type":"purchase","item":"i3"}
"""
CSV = """page,query,item,position,clicked,shop,at
p-1,i0,i7,2,1,north,2026-11-22T16:32:11Z
p-1,i0,i3,1,0,north,2026-11-22T16:32:11Z
p-1,i0,i9,3,,north,
p-1,i0,i12,4,false,north,
"""
SEEN = {"model": "shop", "query": "i0", "shown": ("i3", "i7", "i9", "i12"), "clicked": ("i7",)}
