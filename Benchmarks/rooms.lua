-- Creates rooms, or creates and accepts in turn. Arguments: creates | pairs, a prefix for join codes (long enough
-- that none counts as short), how many creates an accept is behind. With several threads, rooms are created at one node
-- and accepted at the next.
local ffi = require("ffi")
dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "report.lua")

local token = string.rep("a1b2c3d4", 8)
local headers = { ["Content-Type"] = "application/json" }
local pairs_too, prefix, behind, created, accepted, other

-- Counts of rooms, which all threads read and only their own writes: created by each thread, accepted by each thread.
local most = 16
local address, set_up = ffi.new("int[?]", 2 * most), setup

function setup(thread)
  set_up(thread)
  thread:set("counts", tonumber(ffi.cast("intptr_t", address)))
end

function init(arguments)
  pairs_too, prefix, behind = arguments[1] == "pairs", arguments[2], tonumber(arguments[3])
  created = ffi.cast("int *", counts)
  accepted, other = created + most, (number + 1) % math.max(1, #ports)
  -- wrk generates one request before the first and drops it. That room is never made, so it is never accepted.
  accepted[number] = 1
end

function request()
  if not pairs_too or math.min(created[number], created[other]) - accepted[number] < behind then
    created[number] = created[number] + 1
    return wrk.format("POST", "/api/rooms", headers, string.format(
      '{"joinid":"%s-%d-%d","expiresInSeconds":600,"client1":"ann","client1_token":"%s"}', prefix, number, created[number], token))
  end
  accepted[number] = accepted[number] + 1
  return wrk.format("POST", "/api/rooms/accept", headers, string.format(
    '{"joinid":"%s-%d-%d","client2":"ben","client2_token":"%s"}', prefix, other, accepted[number], token))
end
