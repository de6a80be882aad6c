#!/usr/bin/env bash
# BookKeeper 4.18.2 (Java): the public interface BookKeeper has an abstract method that 4.17.2 does not have.
#
# Needs:   Java 17, Maven.
# Does:    lists the methods of org.apache.bookkeeper.client.api.BookKeeper that have no default, in 4.17.2 and 4.18.2.
# Expected: the same, in a minor version: a new method with a default.
# Seen:    isDriverMetadataServiceAvailable is new and abstract: what implements the interface, such as a fake for
#          tests, does not compile any more.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
for version in 4.17.2 4.18.2; do
    mvn -q -B dependency:copy "-Dartifact=org.apache.bookkeeper:bookkeeper-server:$version" -DoutputDirectory=.
    javap -cp "bookkeeper-server-$version.jar" org.apache.bookkeeper.client.api.BookKeeper |
        grep -o ' abstract .*' | sort >"$version"
done
seen=$(diff 4.17.2 4.18.2 | grep '^[<>]' || :)
echo "$seen"
[ "$(wc -l <<<"$seen")" = 1 ] && [[ $seen == ">"*" isDriverMetadataServiceAvailable("* ]]
