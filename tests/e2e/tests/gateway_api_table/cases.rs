//! The cases: the rules of a route, and what requests to its hosts get.
//!
//! In rules, `$NAME` is a reference to the backend with this name. An exchange is `METHOD PATH HEADER:VALUE… -> EXPECTED…`. The
//! request goes to the first host, unless it has a header `host`; `fail:N` makes the backend `flaky` fail N times first. Expected is
//! each of: a status; the name of the backend that answered; `HEADER:VALUE` of the response, with an empty value if it must
//! not be there; `>HEADER:VALUE` of the request that the backend got, with the names `path` and `method` for these; `grpc:N`
//! for the status of a call; `tried:N` for the number of requests that `flaky` got. `{port}` and `{scheme}` are those of the
//! listener.

/// One route with its exchanges.
pub(crate) struct Case {
    /// `HTTPRoute` or `GRPCRoute`.
    pub(crate) kind: &'static str,
    /// The hosts, without `.example.com`.
    pub(crate) hosts: &'static [&'static str],
    /// YAML in flow style.
    pub(crate) rules: &'static [&'static str],
    /// Requests and the expected answers.
    pub(crate) exchanges: &'static [&'static str],
}

const fn http(
    hosts: &'static [&'static str],
    rules: &'static [&'static str],
    exchanges: &'static [&'static str],
) -> Case {
    Case { kind: "HTTPRoute", hosts, rules, exchanges }
}

const fn grpc(
    hosts: &'static [&'static str],
    rules: &'static [&'static str],
    exchanges: &'static [&'static str],
) -> Case {
    Case { kind: "GRPCRoute", hosts, rules, exchanges }
}

/// All cases, of matches and then of filters.
pub(crate) const CASES: &[Case] = &[
    http(
        &["paths"],
        &[
            "{ matches: [{ path: { value: / } }], backendRefs: [{ $v1 }] }",
            "{ matches: [{ path: { value: /new } }], backendRefs: [{ $v2 }] }",
            "{ matches: [{ path: { type: Exact, value: /new/exact } }], backendRefs: [{ $v3 }] }",
            "{ matches: [{ path: { type: RegularExpression, value: '/re/[0-9]+' } }], backendRefs: [{ $v3 }] }",
        ],
        &[
            "GET / -> 200 v1",
            "GET /new -> 200 v2",
            "GET /new/ -> v2",
            "GET /new?a=b -> v2 >path:/new?a=b",
            "GET /newer -> v1",
            "GET /New -> v1",
            "GET /new/exact -> v3",
            "GET /new/exact?a=b -> v3",
            "GET /new/exact/ -> v2",
            "GET /re/12 -> v3",
            "GET /re/12a -> v1",
        ],
    ),
    http(
        &["headers"],
        &[
            "{ backendRefs: [{ $v1 }] }",
            "{ matches: [{ headers: [{ name: X-Canary, value: 'yes' }] }], backendRefs: [{ $v2 }] }",
            "{ matches: [{ headers: [{ type: RegularExpression, name: x-user, value: 'a.*z' }, { name: x-b, value: b }] }], backendRefs: [{ $v3 }] }",
        ],
        &[
            "GET / -> v1",
            "GET / x-canary:yes -> v2",
            "GET / x-canary:yess -> v1",
            "GET / x-user:abcz -> v1",
            "GET / x-user:abcz x-b:b -> v3",
            "GET / x-user:abczy x-b:b -> v1",
            "GET / x-user:abcz x-b:b x-canary:yes -> v3",
        ],
    ),
    http(
        &["query"],
        &[
            "{ backendRefs: [{ $v1 }] }",
            "{ matches: [{ queryParams: [{ name: user, value: ann }] }], backendRefs: [{ $v2 }] }",
            "{ matches: [{ queryParams: [{ type: RegularExpression, name: id, value: '[0-9]+' }] }], backendRefs: [{ $v3 }] }",
        ],
        &[
            "GET /?user=ann -> v2",
            "GET /?x=y&user=ann -> v2",
            "GET /?User=ann -> v1",
            "GET /?user=anna -> v1",
            "GET /?id=12 -> v3",
            "GET /?id=12a -> v1",
        ],
    ),
    http(
        &["methods"],
        &[
            "{ matches: [{ method: GET }], backendRefs: [{ $v1 }] }",
            "{ matches: [{ method: POST }, { method: DELETE }], backendRefs: [{ $v2 }] }",
        ],
        &["GET / -> 200 v1", "POST / -> 200 v2 >method:POST", "DELETE / -> v2", "PUT / -> 404"],
    ),
    http(
        &["precedence"],
        &[
            "{ matches: [{ queryParams: [{ name: q, value: '1' }] }], backendRefs: [{ $v1 }] }",
            "{ matches: [{ headers: [{ name: x-h, value: '1' }] }], backendRefs: [{ $v2 }] }",
            "{ matches: [{ method: POST }], backendRefs: [{ $v3 }] }",
            "{ matches: [{ path: { value: /long } }], backendRefs: [{ $v1 }] }",
            "{ matches: [{ path: { type: Exact, value: /e } }], backendRefs: [{ $v2 }] }",
        ],
        &[
            "POST /?q=1 x-h:1 -> v3",
            "GET /?q=1 x-h:1 -> v2",
            "GET /?q=1 -> v1",
            "POST /long x-h:1 -> v1",
            "POST /e -> v2",
            "GET / -> 404",
        ],
    ),
    http(
        &["*.wild"],
        &["{ backendRefs: [{ $v1 }] }"],
        &["GET / host:a.wild -> v1", "GET / host:b.a.wild -> v1", "GET / host:wild -> 404"],
    ),
    http(
        &["one.wild", "two.wild"],
        &["{ matches: [{ path: { value: /a } }], backendRefs: [{ $v2 }] }"],
        &["GET /a -> v2", "GET /a host:two.wild -> v2", "GET /b -> 404", "GET / host:unknown -> 404"],
    ),
    http(
        &["broken"],
        &[
            "{ matches: [{ path: { value: /none } }] }",
            "{ matches: [{ path: { value: /zero } }], backendRefs: [{ $v1, weight: 0 }] }",
            "{ matches: [{ path: { value: /gone } }], backendRefs: [{ name: gone, port: 80 }] }",
            "{ matches: [{ path: { value: /rest } }], backendRefs: [{ $v1, weight: 0 }, { $v2 }] }",
        ],
        &["GET /none -> 500", "GET /zero -> 500", "GET /gone -> 500", "GET /rest -> 200 v2"],
    ),
    http(
        &["request-headers"],
        &[
            "{ filters: [{ type: RequestHeaderModifier, requestHeaderModifier: { \
               set: [{ name: x-set, value: new }], add: [{ name: x-add, value: more }], remove: [x-gone] } }], \
               backendRefs: [{ $v1 }] }",
            "{ matches: [{ path: { value: /backend } }], \
               filters: [{ type: RequestHeaderModifier, requestHeaderModifier: { set: [{ name: x-set, value: rule }, { name: x-drop, value: rule }] } }], \
               backendRefs: [{ $v1, filters: [{ type: RequestHeaderModifier, requestHeaderModifier: { \
               add: [{ name: x-set, value: backend }], remove: [x-drop] } }] }, { $v1, weight: 0 }] }",
            "{ matches: [{ path: { value: /host } }], \
               filters: [{ type: RequestHeaderModifier, requestHeaderModifier: { set: [{ name: Host, value: other.test }] } }], \
               backendRefs: [{ $v1 }] }",
        ],
        &[
            "GET / x-set:old x-gone:here x-kept:kept -> 200 >x-set:new >x-add:more >x-gone: >x-kept:kept",
            "GET / -> >x-set:new >x-add:more",
            "GET /backend x-drop:client -> >x-set:backend >x-drop:",
            "GET /host -> >host:other.test",
        ],
    ),
    http(
        &["response-headers"],
        &[
            "{ filters: [{ type: ResponseHeaderModifier, responseHeaderModifier: { \
               set: [{ name: x-version, value: v2 }], add: [{ name: x-add, value: more }], remove: [x-instance] } }], \
               backendRefs: [{ $v1 }] }",
            "{ matches: [{ path: { value: /backend } }], \
               backendRefs: [{ $v1, filters: [{ type: ResponseHeaderModifier, responseHeaderModifier: { add: [{ name: x-of, value: first }] } }] }, \
               { $v1, filters: [{ type: ResponseHeaderModifier, responseHeaderModifier: { add: [{ name: x-of, value: first }] } }] }] }",
        ],
        &["GET / -> 200 v2 x-add:more x-instance:", "GET /backend -> v1 x-of:first"],
    ),
    http(
        &["redirects"],
        &[
            "{ filters: [{ type: RequestRedirect, requestRedirect: {} }] }",
            "{ matches: [{ path: { value: /scheme } }], filters: [{ type: RequestRedirect, requestRedirect: { scheme: https } }] }",
            "{ matches: [{ path: { value: /plain } }], filters: [{ type: RequestRedirect, requestRedirect: { scheme: http } }] }",
            "{ matches: [{ path: { value: /host } }], filters: [{ type: RequestRedirect, requestRedirect: { hostname: new.example.org } }] }",
            "{ matches: [{ path: { value: /port } }], filters: [{ type: RequestRedirect, requestRedirect: { port: 8083 } }] }",
            "{ matches: [{ path: { value: /code } }], filters: [{ type: RequestRedirect, requestRedirect: { statusCode: 308 } }] }",
            "{ matches: [{ path: { value: /full } }], filters: [{ type: RequestRedirect, requestRedirect: { path: { type: ReplaceFullPath, replaceFullPath: /all } } }] }",
            "{ matches: [{ path: { value: /prefix } }], filters: [{ type: RequestRedirect, requestRedirect: { path: { type: ReplacePrefixMatch, replacePrefixMatch: /p } } }] }",
            "{ matches: [{ path: { value: /strip } }], filters: [{ type: RequestRedirect, requestRedirect: { path: { type: ReplacePrefixMatch, replacePrefixMatch: / } } }] }",
            "{ matches: [{ path: { value: /every } }], filters: [{ type: RequestRedirect, requestRedirect: { \
               scheme: https, hostname: new.example.org, port: 8443, statusCode: 301, path: { type: ReplaceFullPath, replaceFullPath: /all } } }] }",
        ],
        &[
            "GET /a?b=c -> 302 location:{scheme}://redirects.example.com:{port}/a?b=c",
            "GET /scheme -> 302 location:https://redirects.example.com/scheme",
            "GET /plain -> 302 location:http://redirects.example.com/plain",
            "GET /host -> 302 location:{scheme}://new.example.org:{port}/host",
            "GET /port -> 302 location:{scheme}://redirects.example.com:8083/port",
            "POST /code -> 308 location:{scheme}://redirects.example.com:{port}/code",
            "GET /full/a?b=c -> 302 location:{scheme}://redirects.example.com:{port}/all?b=c",
            "GET /prefix/a?b=c -> 302 location:{scheme}://redirects.example.com:{port}/p/a?b=c",
            "GET /prefix -> 302 location:{scheme}://redirects.example.com:{port}/p",
            "GET /strip/a -> 302 location:{scheme}://redirects.example.com:{port}/a",
            "GET /strip -> 302 location:{scheme}://redirects.example.com:{port}/",
            "GET /every/a -> 301 location:https://new.example.org:8443/all",
        ],
    ),
    http(
        &["rewrites"],
        &[
            "{ matches: [{ path: { value: /full } }], filters: [{ type: URLRewrite, urlRewrite: { path: { type: ReplaceFullPath, replaceFullPath: /all } } }], backendRefs: [{ $v1 }] }",
            "{ matches: [{ path: { value: /prefix } }], filters: [{ type: URLRewrite, urlRewrite: { path: { type: ReplacePrefixMatch, replacePrefixMatch: /p } } }], backendRefs: [{ $v1 }] }",
            "{ matches: [{ path: { value: /strip } }], filters: [{ type: URLRewrite, urlRewrite: { path: { type: ReplacePrefixMatch, replacePrefixMatch: '' } } }], backendRefs: [{ $v1 }] }",
            "{ matches: [{ path: { value: / } }], filters: [{ type: URLRewrite, urlRewrite: { path: { type: ReplacePrefixMatch, replacePrefixMatch: /below } } }], backendRefs: [{ $v1 }] }",
            "{ matches: [{ path: { value: /host } }], filters: [{ type: URLRewrite, urlRewrite: { hostname: inner.test } }], backendRefs: [{ $v1 }] }",
            "{ matches: [{ path: { value: /both } }], filters: [{ type: URLRewrite, urlRewrite: { hostname: inner.test, \
               path: { type: ReplacePrefixMatch, replacePrefixMatch: /x } } }], backendRefs: [{ $v1 }, { $v2 }] }",
        ],
        &[
            "GET /full/a?b=c -> 200 >path:/all?b=c >host:rewrites.example.com",
            "GET /prefix/a?b=c -> >path:/p/a?b=c",
            "GET /prefix -> >path:/p",
            "GET /prefix/ -> >path:/p/",
            "GET /strip/a?b=c -> >path:/a?b=c",
            "GET /strip -> >path:/",
            "GET /a -> >path:/below/a",
            "GET / -> >path:/below/",
            "GET /host/a -> >path:/host/a >host:inner.test",
            "GET /both/a -> >path:/x/a >host:inner.test",
        ],
    ),
    http(
        &["cors"],
        &[
            "{ filters: [{ type: CORS, cors: { allowOrigins: ['https://a.example.org', 'https://*.example.net'], allowCredentials: true, \
               allowMethods: [GET, PUT], allowHeaders: [x-a, x-b], exposeHeaders: [x-version], maxAge: 60 } }], backendRefs: [{ $v1 }] }",
            "{ matches: [{ path: { value: /any } }], filters: [{ type: CORS, cors: { allowOrigins: ['*'] } }], backendRefs: [{ $v1 }] }",
        ],
        &[
            "OPTIONS / origin:https://a.example.org access-control-request-method:PUT -> 200 \
             access-control-allow-origin:https://a.example.org access-control-allow-credentials:true access-control-allow-methods:GET,PUT \
             access-control-allow-headers:x-a,x-b access-control-max-age:60 x-version:",
            "OPTIONS / origin:https://b.example.net access-control-request-method:PUT -> 200 access-control-allow-origin:https://b.example.net",
            "OPTIONS / origin:https://evil.example.org access-control-request-method:PUT -> access-control-allow-origin: x-version:",
            "GET / origin:https://a.example.org -> 200 v1 access-control-allow-origin:https://a.example.org access-control-expose-headers:x-version",
            "GET / origin:https://evil.example.org -> 200 v1 access-control-allow-origin:",
            "GET /any origin:http://whoever.test -> 200 v1 access-control-allow-origin:http://whoever.test",
        ],
    ),
    http(
        &["timeouts"],
        &[
            "{ matches: [{ path: { value: /request } }], timeouts: { request: 100ms }, backendRefs: [{ $v1 }] }",
            "{ matches: [{ path: { value: /backend } }], timeouts: { backendRequest: 100ms }, backendRefs: [{ $v1 }] }",
            "{ matches: [{ path: { value: /none } }], timeouts: { request: 0s }, backendRefs: [{ $v1 }] }",
        ],
        &[
            "GET /request -> 200",
            "GET /request x-ask-delay-ms:5000 -> 504",
            "GET /backend x-ask-delay-ms:5000 -> 504",
            "GET /none x-ask-delay-ms:150 -> 200",
        ],
    ),
    http(
        &["retries"],
        &[
            "{ retry: { codes: [503], attempts: 2, backoff: 1ms }, backendRefs: [{ $flaky }] }",
            "{ matches: [{ path: { value: /other } }], retry: { codes: [502], attempts: 2, backoff: 1ms }, backendRefs: [{ $flaky }] }",
            "{ matches: [{ path: { value: /slow } }], timeouts: { request: 10s, backendRequest: 50ms }, \
               retry: { codes: [504], attempts: 1, backoff: 1ms }, backendRefs: [{ $flaky }] }",
        ],
        &[
            "GET / fail:2 -> 200 tried:3",
            "GET / fail:3 -> 503 tried:3",
            "GET /other fail:1 -> 503 tried:1",
            "GET /slow x-ask-delay-ms:5000 -> 504 tried:2",
        ],
    ),
    grpc(
        &["calls"],
        &[
            "{ backendRefs: [{ $g1 }] }",
            "{ matches: [{ method: { service: shop.Cart } }], backendRefs: [{ $g2 }] }",
            "{ matches: [{ method: { service: shop.Cart, method: Add } }], backendRefs: [{ $g3 }] }",
            "{ matches: [{ method: { method: Watch } }], backendRefs: [{ $g2 }] }",
            "{ matches: [{ method: { type: RegularExpression, service: 'shop[.]v[0-9]', method: 'Get|List' } }], backendRefs: [{ $g3 }] }",
            "{ matches: [{ headers: [{ name: x-canary, value: 'yes' }] }], backendRefs: [{ $g2 }] }",
            "{ matches: [{ headers: [{ type: RegularExpression, name: x-user, value: 'a.*z' }] }], backendRefs: [{ $g3 }] }",
        ],
        &[
            "CALL /shop.Stock/Get -> 200 v1 grpc:0",
            "CALL /shop.Cart/Get -> v2",
            "CALL /shop.Cart/Add -> v3",
            "CALL /shop.Cart/AddAll -> v2",
            "CALL /shop.Carts/Get -> v1",
            "CALL /shop.Stock/Watch -> v2",
            "CALL /shop.v1/List -> v3",
            "CALL /shop.v1/Lists -> v1",
            "CALL /shop.Stock/Get x-canary:yes -> v2",
            "CALL /shop.Stock/Get x-user:abcz -> v3",
            "CALL /shop.Stock/Get x-ask-grpc-status:5 -> v1 grpc:5",
            "CALL /shop.Stock/Get host:unknown -> grpc:12",
        ],
    ),
    grpc(
        &["call-filters"],
        &[
            "{ filters: [{ type: RequestHeaderModifier, requestHeaderModifier: { set: [{ name: x-ask-grpc-status, value: '5' }] } }], backendRefs: [{ $g1 }] }",
            "{ matches: [{ method: { service: remove } }], filters: [{ type: RequestHeaderModifier, requestHeaderModifier: { remove: [x-ask-grpc-status] } }], backendRefs: [{ $g1 }] }",
            "{ matches: [{ method: { service: answer } }], filters: [{ type: ResponseHeaderModifier, responseHeaderModifier: { \
               set: [{ name: x-version, value: v2 }], add: [{ name: x-add, value: more }], remove: [x-instance] } }], backendRefs: [{ $g1 }] }",
            "{ matches: [{ method: { service: backend } }], backendRefs: [{ $g1, filters: [{ type: ResponseHeaderModifier, \
               responseHeaderModifier: { add: [{ name: x-of, value: first }] } }] }] }",
            "{ matches: [{ method: { service: none } }] }",
            "{ matches: [{ method: { service: gone } }], backendRefs: [{ name: gone, port: 80 }] }",
        ],
        &[
            "CALL /shop.Stock/Get -> v1 grpc:5",
            "CALL /remove/Get x-ask-grpc-status:7 -> grpc:0",
            "CALL /answer/Get -> 200 v2 x-add:more x-instance: grpc:0",
            "CALL /backend/Get -> v1 x-of:first grpc:0",
            "CALL /none/Get -> grpc:14",
            "CALL /gone/Get -> grpc:14",
        ],
    ),
    // The exchanges are those of the test of mirrors.
    http(&["mirrors"], &[MIRRORS_OF_REQUESTS], &[]),
    grpc(&["call-mirrors"], &[MIRRORS_OF_CALLS], &[]),
];

const MIRRORS_OF_REQUESTS: &str = "{ filters: [\
    { type: RequestMirror, requestMirror: { backendRef: { $m1 } } }, \
    { type: RequestMirror, requestMirror: { backendRef: { $m2 }, percent: 100 } }, \
    { type: RequestMirror, requestMirror: { backendRef: { $m3 }, percent: 0 } }, \
    { type: RequestMirror, requestMirror: { backendRef: { $m4 }, fraction: { numerator: 1, denominator: 2 } } }], \
    backendRefs: [{ $v1 }] }";
const MIRRORS_OF_CALLS: &str = "{ filters: [\
    { type: RequestMirror, requestMirror: { backendRef: { $n1 } } }, \
    { type: RequestMirror, requestMirror: { backendRef: { $n2 }, percent: 100 } }, \
    { type: RequestMirror, requestMirror: { backendRef: { $n3 }, percent: 0 } }, \
    { type: RequestMirror, requestMirror: { backendRef: { $n4 }, fraction: { numerator: 1, denominator: 2 } } }], \
    backendRefs: [{ $g1 }] }";
