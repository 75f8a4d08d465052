#include "engine/cache/storage_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/model/numbers.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

// A cache of one layer with its page as the plan pads it.
struct Item {
  const CacheSpec* spec = nullptr;
  std::int64_t page = 0;
};
using Items = std::vector<Item>;

// How often the most frequent page occurs.
std::int64_t tuples_of(const Items& items) {
  std::map<std::int64_t, std::int64_t> counts;
  std::int64_t most = 0;
  for (const Item& item : items) most = std::max(most, ++counts[item.page]);
  return most;
}

std::int64_t distinct_page_bytes(const Items& items) {
  std::map<std::int64_t, bool> pages;
  for (const Item& item : items) pages[item.page] = true;
  std::int64_t sum = 0;
  for (const auto& [page, there] : pages) sum += page;
  return sum;
}

// Windowed pages padded up to the smallest page of the full group that holds them.
void pad_to_full(std::vector<Items>& buckets) {
  std::vector<std::int64_t> pages;
  for (const Item& item : buckets[0]) pages.push_back(item.page);
  std::sort(pages.begin(), pages.end());
  for (std::size_t b = 1; b < buckets.size(); ++b) {
    for (Item& item : buckets[b]) {
      const auto fits = std::lower_bound(pages.begin(), pages.end(), item.page);
      if (fits != pages.end()) item.page = *fits;
    }
  }
}

// Caches by (block, window) in order of first appearance, the full ones first.
std::vector<Items> buckets_of(const CacheLayout& layout) {
  std::vector<Items> buckets;
  for (const bool full : {true, false}) {
    for (const CacheSpec& spec : layout.specs) {
      if ((spec.retention.kind == GroupKind::kFull) != full) continue;
      auto it = std::find_if(buckets.begin(), buckets.end(), [&](const Items& items) {
        return items[0].spec->retention.same_kind(spec.retention);
      });
      if (it == buckets.end()) it = buckets.emplace(buckets.end());
      it->push_back({&spec, spec.page_bytes});
    }
  }
  return buckets;
}

// Tuples per group: the d with the least padding, from the full group's up; ties: the larger.
std::int64_t tuple_width(const std::vector<std::int64_t>& t, bool has_full) {
  const std::int64_t high = *std::max_element(t.begin(), t.end());
  std::int64_t best = high;
  std::int64_t best_padding = -1;
  for (std::int64_t d = has_full ? t[0] : 1; d <= high; ++d) {
    std::int64_t padding = 0;
    for (const std::int64_t n : t) padding += ceil_div(n, d) * d - n;
    if (best_padding < 0 || padding <= best_padding) {
      best = d;
      best_padding = padding;
    }
  }
  return best;
}

// Tuple k of a bucket goes to part k mod parts; the k-th cache of each page size is in tuple k.
std::vector<Items> split(const Items& items, std::int64_t parts) {
  std::vector<Items> out(static_cast<std::size_t>(parts));
  std::map<std::int64_t, std::int64_t> seen;  // page -> caches so far
  for (const Item& item : items) {
    out[static_cast<std::size_t>(seen[item.page]++ % parts)].push_back(item);
  }
  return out;
}

PlannedGroup make_group(const Items& items, std::int64_t part, std::int64_t parts) {
  PlannedGroup group;
  const CacheSpec& first = *items[0].spec;
  group.name = first.group_name;
  if (parts > 1) group.name += "-" + std::to_string(part + 1);
  group.spec = first.retention;
  for (const Item& item : items) {
    const std::int64_t real = item.spec->rows().page_used;
    auto it = std::find_if(group.pages.begin(), group.pages.end(), [&](const PlannedPage& page) {
      return page.real_bytes == real && page.padded_bytes == item.page;
    });
    if (it == group.pages.end()) {
      it = group.pages.insert(group.pages.end(), {real, item.page, 0});
    }
    ++it->layers;
    ++group.layers;
    group.bytes += item.page;
  }
  return group;
}

}  // namespace

StoragePlan plan_storage(const CacheLayout& caches, StorageLayout layout) {
  StoragePlan plan;
  plan.layout = layout;
  std::vector<Items> buckets = buckets_of(caches);
  if (buckets.empty()) return plan;
  const bool has_full = buckets[0][0].spec->retention.kind == GroupKind::kFull;
  if (layout == StorageLayout::kPerTensor && has_full) pad_to_full(buckets);
  std::vector<std::int64_t> t;
  t.reserve(buckets.size());
  for (const Items& items : buckets) t.push_back(tuples_of(items));
  const std::int64_t width = tuple_width(t, has_full);
  std::int64_t largest = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::int64_t parts = ceil_div(t[b], width);
    const std::vector<Items> groups = split(buckets[b], parts);
    for (std::int64_t p = 0; p < parts; ++p) {
      const Items& items = groups[static_cast<std::size_t>(p)];
      plan.tuples = std::max(plan.tuples, tuples_of(items));
      plan.groups.push_back(make_group(items, p, parts));
      largest = std::max(largest, plan.groups.back().bytes);
    }
  }
  plan.checked_bytes = distinct_page_bytes(buckets[0]) * plan.tuples;
  plan.bytes_per_block = layout == StorageLayout::kPacked ? largest : plan.checked_bytes;
  return plan;
}

Capacity capacity_of(const StoragePlan& plan, std::int64_t bytes, std::int64_t max_model_len,
                     std::int64_t token_budget, ConcurrencyFigure figure) {
  Capacity c;
  if (plan.groups.empty()) return c;
  c.num_blocks = bytes / plan.bytes_per_block;
  c.alignment = 1;
  std::int64_t request_pages = 0;  // bytes of all pages of a longest request
  std::int64_t first_pages = 0;    // the same where each group is known by its first layer alone
  for (const PlannedGroup& group : plan.groups) {
    const std::int64_t cap = admission_cap(group.spec, token_budget, max_model_len);
    const std::int64_t blocks = cap >= 0 ? cap : ceil_div(max_model_len, group.spec.block_tokens);
    c.request_blocks.push_back(blocks);
    c.request_total += blocks;
    request_pages += blocks * group.bytes;
    first_pages += blocks * group.pages[0].padded_bytes;
    c.alignment = std::lcm(c.alignment, std::int64_t{group.spec.block_tokens});
    c.hash_block = std::gcd(c.hash_block, std::int64_t{group.spec.block_tokens});
  }
  c.request_bytes = c.request_total * plan.checked_bytes;
  const auto blocks = static_cast<double>(c.num_blocks);
  if (figure == ConcurrencyFigure::kByGroup) {
    c.concurrency_worker = blocks / static_cast<double>(c.request_total);
    c.concurrency_scheduler = c.concurrency_worker;
  } else {
    const PlannedGroup& first = plan.groups[0];
    c.concurrency_worker = blocks / static_cast<double>(ceil_div(request_pages, first.bytes));
    c.concurrency_scheduler =
        blocks / static_cast<double>(ceil_div(first_pages, first.pages[0].padded_bytes));
  }
  return c;
}

}  // namespace attnscope
