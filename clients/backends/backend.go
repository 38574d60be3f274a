// A back end that reports events, asks for approvals and rings phones, with Go's standard library alone.
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

type object = map[string]any

func secret(variable string) []byte {
	key, err := os.ReadFile(os.Getenv(variable))
	if err != nil {
		log.Fatal(err)
	}
	// While a webhook's secret is replaced, the broker's file has two.
	line, _, _ := bytes.Cut(key, []byte("\n"))
	return bytes.TrimSpace(line)
}

func encoded(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	return text
}

func hmacSHA256(key []byte, text []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return mac.Sum(nil)
}

// Returns a JWT that is valid for five minutes, signed with the login's HS256 key.
func jwt() string {
	now, url := time.Now().Unix(), base64.RawURLEncoding
	text := url.EncodeToString(encoded(object{"alg": "HS256", "typ": "JWT"})) + "." +
		url.EncodeToString(encoded(object{"sub": "back-end", "scope": "broker.notify", "iat": now, "exp": now + 300}))
	return text + "." + url.EncodeToString(hmacSHA256(secret("LOGIN_SECRET"), []byte(text)))
}

// Retries lost answers, 429 and 502 to 504 twice, after Retry-After, a minute at most, or a second. Other errors end the program.
// Sends a JWT if there is no webhook's signature, and to nobody else: the broker never redirects.
func send(method, path string, body []byte, signature string) object {
	client := http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for tries := 1; ; tries++ {
		request, err := http.NewRequest(method, os.Getenv("BROKER")+path, bytes.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		if signature != "" {
			request.Header.Set("X-CometChat-Signature", signature)
		} else {
			request.Header.Set("Authorization", "Bearer "+jwt())
		}
		seconds := 1
		var result object
		answer, err := client.Do(request)
		if err == nil {
			// A proxy's refusal may be no JSON.
			err = json.NewDecoder(answer.Body).Decode(&result)
			answer.Body.Close()
			if answer.StatusCode < 300 && err == nil {
				return result
			}
			status := answer.StatusCode
			isRefused := status >= 300 && status != 429 && (status < 502 || status > 504)
			if isRefused || tries == 3 {
				log.Fatal(answer.Status, " ", result["code"])
			}
			if wait, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && wait >= 0 {
				seconds = wait
				if wait > 60 {
					seconds = 60
				}
			}
		} else if tries == 3 {
			log.Fatal(err)
		}
		time.Sleep(time.Duration(seconds) * time.Second)
	}
}

// A repeat with the same id within twelve hours pushes nothing. Without an id it gets a random one.
func report(user, session, kind, id string, data object) object {
	if id == "" {
		bytes := make([]byte, 16)
		rand.Read(bytes)
		id = hex.EncodeToString(bytes)
	}
	event := object{"userId": user, "type": kind, "data": data, "eventId": id}
	return send("POST", "/api/sessions/"+url.PathEscape(session)+"/events", encoded(event), "")
}

// Returns `approved`, `denied`, `timed_out` or `withdrawn`. Takes a minute at most, or longer if it is told to retry later.
func ask(user, session, id string) string {
	request, hasID := report(user, session, "approval_request", id, object{})["requestId"].(string)
	if !hasID {
		log.Fatal("The answer has no requestId. Check BROKER.")
	}
	for {
		status, hasStatus := send("GET", "/api/approval/"+url.PathEscape(request), nil, "")["status"].(string)
		if !hasStatus {
			log.Fatal("The answer has no status. Check BROKER.")
		}
		if status != "pending" {
			return status
		}
		time.Sleep(time.Second)
	}
}

// Returns how many phones ring: none if they have rung for this call.
func ring(caller, receiver, call, kind string) any {
	data := object{"sessionId": call, "type": kind, "initiator": object{"uid": caller}, "receiver": object{"uid": receiver}, "receiverType": "user"}
	body := encoded(object{"trigger": "call_initiated", "data": data})
	return send("POST", "/webhooks/call", body, hex.EncodeToString(hmacSHA256(secret("WEBHOOK_SECRET"), body)))["rang"]
}

func main() {
	words := append(os.Args[1:], "", "", "", "", "")
	switch words[0] {
	case "report":
		// The status is for `task_complete`. Other events ignore it.
		fmt.Println(report(words[1], words[2], words[3], words[4], object{"status": "success"})["pushes"])
	case "ask":
		fmt.Println(ask(words[1], words[2], words[3]))
	case "ring":
		fmt.Println(ring(words[1], words[2], words[3], "audio"))
	default:
		log.Fatal("backend report USER SESSION TYPE [EVENT] | ask USER SESSION | ring CALLER RECEIVER CALL")
	}
}
