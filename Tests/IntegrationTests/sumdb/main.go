// An independent verifier of the log. golang.org/x/mod/sumdb, the code of Go's checksum database, checks signed notes, trees and tiles.
// story.go checks the entries.
//
// Reads a job a line from standard input and prints a line each: "good SIZE ROOT" or "bad CODE FAULT". The code is "tree" for
// any fault that sumdb finds. A log that was compared with no earlier head is "consistent SIZE ROOT".
//
//	verify DIR VKEY [CHECKPOINT-FILE]...   the whole log, and that it continues these
//	tree DIR VKEY [CHECKPOINT-FILE]...     the same, without a check of the entries
//	root COUNT                             the root of the leaves "leaf-0", "leaf-1", ...
//	include DIR VKEY INDEX HASH...         an inclusion proof, hashes in base64, of an entry of the log
//	consist OLD OLD-ROOT NEW NEW-ROOT HASH...
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const height = 8

// The size of the largest possible file: 256 entries of 65,535 bytes.
const longest = 256 * (2 + 65535)

var errTooLong = errors.New("larger than any file of a log")

// Hashes in memory, in the order of tlog.StoredHashIndex.
type stored []tlog.Hash

func (s stored) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if index >= int64(len(s)) {
			return nil, fmt.Errorf("no hash %d", index)
		}
		hashes[i] = s[index]
	}
	return hashes, nil
}

func (s *stored) add(n int64, record []byte) error {
	hashes, err := tlog.StoredHashes(n, record, *s)
	*s = append(*s, hashes...)
	return err
}

// A folder of tiles. Its paths lack the tile's height, which tlog puts first.
type folder struct{ path string }

func (f folder) Height() int                             { return height }
func (f folder) SaveTiles(tiles []tlog.Tile, _ [][]byte) {}

func (f folder) file(tile tlog.Tile) string {
	path := strings.TrimPrefix(tile.Path(), "tile/8/")
	path = strings.Replace(path, "data/", "entries/", 1)
	return filepath.Join(f.path, "tile", path)
}

// A file's content. A pipe would block.
func readFile(path string) ([]byte, error) {
	if status, err := os.Stat(path); err != nil {
		return nil, err
	} else if !status.Mode().IsRegular() {
		return nil, fmt.Errorf("%s isn't a file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, longest+1))
	if err == nil && len(data) > longest {
		return nil, errTooLong
	}
	return data, err
}

// A partial tile, or that part of the full one if only the full one is left.
func (f folder) read(tile tlog.Tile) (data []byte, whole bool, err error) {
	data, err = readFile(f.file(tile))
	if errors.Is(err, os.ErrNotExist) && tile.W < 1<<height {
		full := tile
		full.W = 1 << height
		data, err = readFile(f.file(full))
		return data, false, err
	}
	return data, true, err
}

func (f folder) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	all := make([][]byte, len(tiles))
	for i, tile := range tiles {
		data, whole, err := f.read(tile)
		if err != nil {
			return nil, err
		}
		if want := tile.W * tlog.HashSize; !whole && len(data) == tlog.HashSize<<height {
			data = data[:want]
		}
		all[i] = data
	}
	return all, nil
}

// The entries of a log, from its bundles.
func (f folder) entries(size int64) ([][]byte, error) {
	var all [][]byte
	for first := int64(0); first < size; first += 1 << height {
		width := size - first
		if width > 1<<height {
			width = 1 << height
		}
		tile := tlog.Tile{H: height, L: -1, N: first >> height, W: int(width)}
		data, whole, err := f.read(tile)
		if err != nil {
			return nil, err
		}
		for i := int64(0); i < width; i++ {
			if len(data) < 2 || len(data) < 2+int(binary.BigEndian.Uint16(data)) {
				return nil, fmt.Errorf("%s ends within entry %d", f.file(tile), first+i)
			}
			end := 2 + int(binary.BigEndian.Uint16(data))
			all = append(all, data[2:end])
			data = data[end:]
		}
		if whole && len(data) > 0 {
			return nil, fmt.Errorf("%s continues after its last entry", f.file(tile))
		}
	}
	return all, nil
}

// A checkpoint is a note whose text is ParseTree's, with the origin for a first line.
func openCheckpoint(path, vkey string) (tree tlog.Tree, err error) {
	message, err := readFile(path)
	if err != nil {
		return tree, err
	}
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return tree, err
	}
	opened, err := note.Open(message, note.VerifierList(verifier))
	if err != nil {
		return tree, err
	} else if err = checkNote(message, note.VerifierList(verifier)); err != nil {
		return tree, err
	}
	lines := strings.SplitAfter(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != verifier.Name()+"\n" {
		return tree, errors.New("not three lines with the key's name as origin")
	}
	tree, err = tlog.ParseTree([]byte("go.sum database tree\n" + lines[1] + lines[2]))
	if err == nil && lines[2] != tree.Hash.String()+"\n" {
		return tree, errNote
	}
	return tree, err
}

func verify(path, vkey string, older []string, judge func(string, [][]byte) error) (tlog.Tree, error) {
	log := folder{path}
	tree, err := openCheckpoint(filepath.Join(path, "checkpoint"), vkey)
	if err != nil {
		return tree, err
	}
	entries, err := log.entries(tree.N)
	if err != nil {
		return tree, err
	}
	var own stored
	for i, entry := range entries {
		if err := own.add(int64(i), entry); err != nil {
			return tree, err
		}
	}
	root, err := tlog.TreeHash(tree.N, own)
	if err != nil {
		return tree, err
	}
	if root != tree.Hash && tree.N > 0 { // This version of tlog has no root for an empty tree.
		return tree, errors.New("the entries don't hash to the signed root")
	}
	if tree.N == 0 {
		return tree, nil
	}

	// Every tile, read through the signed root and compared with the entries' hashes.
	tiles := tlog.TileHashReader(tree, log)
	for _, tile := range tlog.NewTiles(height, 0, tree.N) {
		if full := tree.N >> uint(height*tile.L); tile.W < 1<<height && (tile.N != full>>height || int64(tile.W) != full&(1<<height-1)) {
			continue // A partial tile of an earlier size.
		}
		theirs, err := tlog.ReadTileData(tile, tiles)
		if err != nil {
			return tree, fmt.Errorf("%s: %w", log.file(tile), err)
		}
		ours, err := tlog.ReadTileData(tile, own)
		if err != nil {
			return tree, err
		}
		if !bytes.Equal(ours, theirs) {
			return tree, fmt.Errorf("%s differs from the entries", log.file(tile))
		}
	}

	// Proofs made from the tiles, checked against root and entries.
	for step, i := tree.N/37+1, int64(0); i < tree.N; i += step {
		proof, err := tlog.ProveRecord(tree.N, i, tiles)
		if err != nil {
			return tree, err
		}
		if err := tlog.CheckRecord(proof, tree.N, tree.Hash, i, tlog.RecordHash(entries[i])); err != nil {
			return tree, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	for _, file := range older {
		old, err := openCheckpoint(file, vkey)
		if err != nil {
			return tree, fmt.Errorf("%s: %w", file, err)
		}
		if old.N > tree.N {
			return tree, fmt.Errorf("%s: the log was cut back", file)
		}
		if old.N == 0 {
			continue
		}
		proof, err := tlog.ProveTree(tree.N, old.N, tiles)
		if err != nil {
			return tree, err
		}
		if err := tlog.CheckTree(proof, tree.N, tree.Hash, old.N, old.Hash); err != nil {
			return tree, fmt.Errorf("%s: %w", file, err)
		}
	}
	return tree, judge(path, entries)
}

func root(count int64) (tlog.Tree, error) {
	var own stored
	for i := int64(0); i < count; i++ {
		if err := own.add(i, []byte(fmt.Sprintf("leaf-%d", i))); err != nil {
			return tlog.Tree{}, err
		}
	}
	hash, err := tlog.TreeHash(count, own)
	return tlog.Tree{N: count, Hash: hash}, err
}

func hashes(texts []string) (all []tlog.Hash, err error) {
	for _, text := range texts {
		hash, err := tlog.ParseHash(text)
		if err != nil {
			return nil, err
		}
		all = append(all, hash)
	}
	return all, nil
}

func min(a, b int64) int64 { return -max(-a, -b) }
func max(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return value
}

func answer(words []string) (tree tlog.Tree, err error) {
	switch words[0] {
	case "verify":
		return verify(words[1], words[2], words[3:], judgeStory)
	case "tree":
		return verify(words[1], words[2], words[3:], func(string, [][]byte) error { return nil })
	case "root":
		return root(number(words[1]))
	case "include":
		if tree, err = openCheckpoint(filepath.Join(words[1], "checkpoint"), words[2]); err != nil {
			return tree, err
		}
		entries, err := folder{words[1]}.entries(tree.N)
		if err != nil {
			return tree, err
		}
		proof, err := hashes(words[4:])
		if err != nil {
			return tree, err
		}
		index := number(words[3])
		if index >= tree.N {
			return tree, errors.New("beyond the tree")
		}
		return tree, tlog.CheckRecord(proof, tree.N, tree.Hash, index, tlog.RecordHash(entries[index]))
	case "consist":
		roots, err := hashes([]string{words[2], words[4]})
		if err != nil {
			return tree, err
		}
		proof, err := hashes(words[5:])
		if err != nil {
			return tree, err
		}
		tree = tlog.Tree{N: number(words[3]), Hash: roots[1]}
		return tree, tlog.CheckTree(proof, tree.N, tree.Hash, number(words[1]), roots[0])
	}
	return tree, errors.New("no such job")
}

// Whether a log was compared with an earlier head. One without entries proves nothing.
func compared(words []string) bool {
	if words[0] != "verify" && words[0] != "tree" {
		return true
	}
	for _, file := range words[3:] {
		if old, err := openCheckpoint(file, words[2]); err == nil && old.N > 0 {
			return true
		}
	}
	return false
}

func main() {
	jobs := bufio.NewScanner(os.Stdin)
	jobs.Buffer(nil, 1<<20)
	for jobs.Scan() {
		words := strings.Fields(jobs.Text())
		tree, err := answer(words)
		if story, ok := err.(broken); ok {
			fmt.Printf("bad %s %q\n", story.code, story.what)
		} else if err != nil {
			fmt.Printf("bad tree %q\n", err)
		} else if compared(words) {
			fmt.Printf("good %d %s\n", tree.N, tree.Hash)
		} else {
			fmt.Printf("consistent %d %s\n", tree.N, tree.Hash)
		}
	}
}
