#include "app/reports/ess_claims.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/text/format.h"
#include "engine/offload/simulate.h"

namespace attnscope {
namespace {

constexpr double kOverlapClaimed = 0.8, kIndexClaimed = 0.2, kRatioClaimed = 0.2;
// Rows of a token's record in V3.2, and its index key.
constexpr std::int64_t kRowBytes = 656, kIndexBytes = 132;

// Of 16 steps of one layer; the same rows are liked, and as much of a selection stays, however long
// the context is.
GeneratorOptions generator_of(std::int64_t context, std::int64_t batch) {
  return {.context = context,
          .batch = batch,
          .topk = 2048,
          .steps = 16,
          .layers = 1,
          .overlap = 0.85,
          .hot_rows = 4096,
          .hot_share = 0.8,
          .seed = 1,
          .row_bytes = kRowBytes,
          .index_bytes = kIndexBytes};
}

EssClaim overlap_claim(const SelectionTrace& trace) {
  EssClaim claim{
      .claim = "consecutive selections of a layer have over 80 % of their rows in common",
      .source = trace.source};
  const auto result = simulate_offload(trace, {.ratio = 1, .warm = false});
  std::vector<double> overlaps;
  if (result) {
    for (const OffloadLayer& layer : result->layers) {
      if (layer.overlap) overlaps.push_back(*layer.overlap);
    }
  }
  if (overlaps.empty()) {
    claim.found = "no step behind another";
    return claim;
  }
  const auto [least, most] = std::ranges::minmax_element(overlaps);
  claim.found = fmt::format("{} to {} by layer", format_share(*least), format_share(*most));
  claim.agreement = *least > kOverlapClaimed ? Agreement::kAgrees : Agreement::kDiffers;
  return claim;
}

EssClaim index_claim() {
  const double share = static_cast<double>(kIndexBytes) / static_cast<double>(kRowBytes);
  return {.claim = "index keys take over 20 % of the bytes that rows do",
          .found = fmt::format("{} of {} bytes: {}", kIndexBytes, kRowBytes, format_share(share)),
          .source = "row formats index_fp8 and latent_656",
          .agreement = share > kIndexClaimed ? Agreement::kAgrees : Agreement::kDiffers};
}

Result<EssClaim> miss_claim() {
  EssClaim claim{.claim =
                     "a pool of a fifth of the rows misses more at 32 K than at longer contexts"};
  std::vector<std::string> found;
  std::vector<double> rates;
  for (const std::int64_t context : {32768, 65536, 131072}) {
    auto trace = generated_trace(generator_of(context, 1));
    if (!trace) return trace.error();
    auto result = simulate_offload(*trace, {.ratio = kRatioClaimed});
    if (!result) return result.error();
    rates.push_back(result->total.miss_rate());
    found.push_back(fmt::format("{} at {} K", format_share(rates.back()), context / 1024));
    claim.source = trace->source;
  }
  claim.source = claim.source.replace(claim.source.find("context 131072"), 14, "each context");
  claim.found = fmt::format("{}", fmt::join(found, ", "));
  claim.agreement =
      rates[0] > rates[1] && rates[0] > rates[2] ? Agreement::kAgrees : Agreement::kDiffers;
  return claim;
}

Result<EssClaim> overlap_ways_claim(const OverlapConstants& constants) {
  EssClaim claim{.claim = "DA is the faster one for short contexts, DBA for long ones"};
  std::vector<std::string> found;
  std::vector<bool> da_wins;
  for (const std::int64_t context : {4096, 32768, 131072}) {
    auto trace = generated_trace(generator_of(context, 8));
    if (!trace) return trace.error();
    // A fifth of the rows, or the selection of a step where that is more.
    const double least = 1.1 * 2048 / static_cast<double>(context);
    auto result =
        simulate_offload(*trace, {.ratio = std::max(kRatioClaimed, least), .constants = constants});
    if (!result) return result.error();
    const double da = *result->us[static_cast<std::size_t>(Overlap::kDa)];
    const double dba = result->us[static_cast<std::size_t>(Overlap::kDba)].value_or(da);
    da_wins.push_back(da < dba);
    found.push_back(
        fmt::format("{} K: DA {}, DBA {}", context / 1024, format_us(da), format_us(dba)));
  }
  claim.found = fmt::format("{}", fmt::join(found, "; "));
  claim.source = "the MODEL of times, its constants, generated selections of 8 requests";
  claim.agreement = da_wins.front() && !da_wins.back() ? Agreement::kAgrees : Agreement::kDiffers;
  return claim;
}

}  // namespace

const char* agreement_name(Agreement agreement) {
  constexpr const char* kNames[] = {"agrees", "differs", "open"};
  return kNames[static_cast<int>(agreement)];
}

Result<std::vector<EssClaim>> ess_claims(const std::vector<SelectionTrace>& recorded,
                                         const OverlapConstants& constants) {
  std::vector<EssClaim> claims;
  claims.reserve(recorded.size() + 8);
  for (const SelectionTrace& trace : recorded) claims.push_back(overlap_claim(trace));
  if (recorded.empty()) {
    claims.push_back(
        {.claim = "consecutive selections of a layer have over 80 % of their rows in "
                  "common",
         .found = "-",
         .source = "no capture was given; what is generated has what it was asked for"});
  }
  claims.push_back(index_claim());
  auto misses = miss_claim();
  if (!misses) return misses.error();
  claims.push_back(std::move(*misses));
  auto ways = overlap_ways_claim(constants);
  if (!ways) return ways.error();
  claims.push_back(std::move(*ways));
  return claims;
}

}  // namespace attnscope
