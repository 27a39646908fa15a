#!/usr/bin/env bash
# Fails where README.md or docs/ quote a file wrongly or link to nothing.
#   <!-- FILE -->           before a code block: the block is FILE
#   <!-- FILE: PIECE -->    ... or what stands in FILE between "[PIECE]" and "[end]", without its indentation
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
faults=0

fault() {
  echo "$1" >&2
  faults=$((faults + 1))
}

without_indentation() {
  awk '{ lines[NR] = $0; if ($0 ~ /[^ ]/) { match($0, /^ */); if (!seen++ || RLENGTH < least) least = RLENGTH } }
    END { for (i = 1; i <= NR; ++i) print substr(lines[i], least + 1) }'
}

piece() { # piece FILE [PIECE]
  if [ -z "${2:-}" ]; then
    cat "$1"
  else
    awk -v name="[$2]" 'index($0, "[end]") { inside = 0 } inside { print } index($0, name) { inside = 1 }' "$1" |
      without_indentation
  fi
}

code_block() { # code_block DOCUMENT LINE: the block that starts right behind that line
  awk -v line="$2" 'NR == line + 1 { if (!/^```/) exit; next } NR > line + 1 { if (/^```$/) exit; print }' "$1"
}

documents=$(git ls-files '*.md')
quotes=0
links=0
for document in $documents; do
  while IFS=: read -r number file name; do
    quotes=$((quotes + 1))
    if [ ! -f "$file" ]; then
      fault "$document:$number: quoted file is $file; it must be in the repository"
    elif [ "$(code_block "$document" "$number")" != "$(piece "$file" "${name# }")" ]; then
      fault "$document:$number: the code block differs from $file${name:+, piece$name}"
    fi
  done < <(grep -nE '^<!-- (examples|test|tools)/[^ ]+ ?.*-->$' "$document" |
    sed -E 's/<!-- ([^ :]+)(: [a-z_]+)? -->/\1\2/')
  while IFS= read -r link; do
    links=$((links + 1))
    case $link in
      http*: | http*) continue ;;
      '#'*) continue ;;
    esac
    [ -e "$(dirname "$document")/${link%%#*}" ] || fault "$document: link is $link; it must name a file"
  done < <(awk '/^```/ { code = !code } !code' "$document" | grep -oE '\]\([^)]+\)' | sed -E 's/^\]\((.*)\)$/\1/')
done
echo "documents: $quotes quotations and $links links, $faults faults"
[ $faults = 0 ] && [ $quotes -gt 0 ] && [ $links -gt 0 ]
