// Whether bytes are those that were there before: a hash that reads memory about as fast as it
// comes, for what is looked at in every step (weights, tables, caches). Not for files, and not
// against somebody who chooses the bytes: for those that a bug changed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attnscope {

// Of `bytes` bytes. Hashes of parts are chained by `seed`, the hash of the part before. A change of
// any one word changes it: each step of a word into its sum can be undone.
std::uint64_t content_hash(const void* data, std::size_t bytes, std::uint64_t seed = 0);

// The same with half of the products, for gigabytes a step; of other values, and not to be chained.
std::uint64_t memory_hash(const void* data, std::size_t bytes);

}  // namespace attnscope
