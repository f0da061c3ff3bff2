# Tells the sidecar of this pod to drain what comes in: every answer ends its connection, and new requests are served on.
exec 3<> /dev/tcp/127.0.0.1/15000
printf 'POST /drain_listeners?inboundonly&graceful&skip_exit HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n' >&3
read -r _ status _ <&3
[ "$status" = 200 ]
