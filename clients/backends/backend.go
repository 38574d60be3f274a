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
	return bytes.TrimSpace(key)
}

func encoded(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	return text
}

func code(key []byte, text []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return mac.Sum(nil)
}

// Lasts five minutes. The secret is that of the app's login, an HS256 key that the broker has, too.
func jwt() string {
	now, url := time.Now().Unix(), base64.RawURLEncoding
	text := url.EncodeToString(encoded(object{"alg": "HS256", "typ": "JWT"})) + "." +
		url.EncodeToString(encoded(object{"sub": "back-end", "scope": "broker.notify", "iat": now, "exp": now + 300}))
	return text + "." + url.EncodeToString(code(secret("LOGIN_SECRET"), []byte(text)))
}

// Repeats what the broker had no time for. Other errors end the program.
func send(method, path string, body []byte, header, value string) object {
	client := http.Client{Timeout: 10 * time.Second}
	for tries := 1; ; tries++ {
		request, err := http.NewRequest(method, os.Getenv("BROKER")+path, bytes.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		request.Header.Set(header, value)
		answer, err := client.Do(request)
		if err != nil {
			log.Fatal(err)
		}
		var result object
		err = json.NewDecoder(answer.Body).Decode(&result)
		answer.Body.Close()
		if answer.StatusCode < 300 && err == nil {
			return result
		}
		if answer.StatusCode != 429 && answer.StatusCode != 503 || tries == 3 {
			log.Fatal(answer.Status, " ", result["code"])
		}
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		time.Sleep(time.Duration(seconds) * time.Second)
	}
}

func report(user, session, kind string, data object) object {
	id := make([]byte, 16) // It makes a repeat harmless.
	rand.Read(id)
	event := object{"userId": user, "type": kind, "data": data, "eventId": hex.EncodeToString(id)}
	return send("POST", "/api/sessions/"+url.PathEscape(session)+"/events", encoded(event), "Authorization", "Bearer "+jwt())
}

// Returns `approved`, `denied`, `timed_out` or `withdrawn`, after a minute at most.
func ask(user, session string) string {
	request := report(user, session, "approval_request", object{})["requestId"].(string)
	for {
		status := send("GET", "/api/approval/"+request, nil, "Authorization", "Bearer "+jwt())["status"].(string)
		if status != "pending" {
			return status
		}
		time.Sleep(time.Second)
	}
}

// Returns how many phones ring.
func ring(caller, receiver, call, kind string) any {
	data := object{"sessionId": call, "type": kind, "initiator": object{"uid": caller}, "receiver": object{"uid": receiver}, "receiverType": "user"}
	body := encoded(object{"trigger": "call_initiated", "data": data})
	return send("POST", "/webhooks/call", body, "X-CometChat-Signature", hex.EncodeToString(code(secret("WEBHOOK_SECRET"), body)))["rang"]
}

func main() {
	words := append(os.Args[1:], "", "", "", "")
	switch words[0] {
	case "report":
		fmt.Println(report(words[1], words[2], words[3], object{})["pushes"])
	case "ask":
		fmt.Println(ask(words[1], words[2]))
	case "ring":
		fmt.Println(ring(words[1], words[2], words[3], "audio"))
	default:
		log.Fatal("backend report USER SESSION TYPE | ask USER SESSION | ring CALLER RECEIVER CALL")
	}
}
