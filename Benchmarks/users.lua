-- Calls of users of an app with accounts, and knocks to compare them with. Arguments: register | again | complete |
-- progress | knock; the number of users (rooms); the first of them here; a file with a line for each, from the first
-- on: its JWT (room's id); the back end's JWT.
dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "report.lua")

local lines, total, at, back_end, kind = {}, 0, 0, "", ""
local first = 0

local function posted(path, bearer, body)
  return string.format(
    "POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
    path, bearer, #body, body)
end

local function event(session, user, rest)
  return posted("/api/sessions/" .. session .. "/events", back_end, string.format('{"userId":"user-%d",%s}', user, rest))
end

local function device(number)
  return string.format('"deviceToken":"%064x"', number)
end

local kinds = {}

function kinds.register(number)
  return posted("/api/push/register", lines[number - first + 1], "{" .. device(number) .. ',"platform":"ios"}')
end

kinds.again = kinds.register

function kinds.complete(number)
  return event("task", number, '"type":"task_complete","data":{"status":"success"}')
end

function kinds.progress(number)
  return event("session-" .. number, number, string.format(
    '"type":"progress_update","data":{"elapsedSeconds":%d,"todoProgress":{"completed":%d,"total":999}}', number % 8640, number % 999))
end

function kinds.knock(number)
  return posted("/api/room/presence", lines[number - first + 1], '{"client":"ben"}')
end

function init(arguments)
  kind, total, first, back_end = arguments[1], tonumber(arguments[2]), tonumber(arguments[3]), arguments[5]
  if arguments[4] ~= "" then
    for line in io.lines(arguments[4]) do lines[#lines + 1] = line end
  end
  -- Several threads go round from different places.
  at = first - 1 + math.floor(total / math.max(1, #ports)) * number
end

function request()
  at = at + 1
  if at >= first + total then
    -- A second registration of one user would be another operation.
    if kind == "register" then error("no users left") end
    at = first
  end
  return kinds[kind](at)
end

-- A part of each call's successful answer.
local good = {
  register = '"handleKey"', again = '"handleKey"', knock = '"queued"', complete = '"pushes":1', progress = '"pushes":1' }
missed = 0

function response(status, _, body)
  if status < 300 and not body:find(good[kind], 1, true) then missed = missed + 1 end
end

local report = done

function done(summary, latency)
  for _, thread in ipairs(threads) do summary.errors.status = summary.errors.status + thread:get("missed") end
  report(summary, latency)
end
