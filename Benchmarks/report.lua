-- Each thread sends to one of the ports in PORTS, or to the URL's. `number` counts threads from 0.
threads, ports = {}, {}
for port in (os.getenv("PORTS") or ""):gmatch("%d+") do ports[#ports + 1] = port end

function setup(thread)
  threads[#threads + 1] = thread
  thread:set("number", #threads - 1)
  if ports[#threads] then thread.addr = wrk.lookup("127.0.0.1", ports[#threads])[1] end
end

-- The report that load.py reads: requests, microseconds, errors of any kind, p99 in microseconds.
function done(summary, latency)
  local errors = summary.errors
  print(string.format("report %d %d %d %.1f", summary.requests, summary.duration,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout, latency:percentile(99)))
end
