// paged_attention of tokens that follow each other in a request over rows of codes, on Hopper, by
// the tiles of attention_tiles.cuh: codes of a tile of keys and values are widened once for all its
// queries (attention_codes.cuh).
#include "kernels/cuda/paged_tiles.cuh"

namespace attnscope::cuda::paged {

// The values of a row's head before their scale, but no numbers where it is none.
struct CodedRow {
  const unsigned char* codes;
  float zero, none;
  std::int32_t kind;
};
__device__ __forceinline__ float number_of(const CodedRow& row, int dim) {
  return code_value(row.kind, row.codes[dim], row.zero) + row.none;
}

struct CodesOp : PagedTiles {
  __device__ __forceinline__ I64 first_row(const Seen& rows) const { return rows.first; }
  __device__ __forceinline__ tiles::RowPlace place(I64 request, I64 row) const {
    const auto narrow = static_cast<std::uint32_t>(row);
    tiles::RowPlace found{};
    if (n.paged) {
      const auto of_page = static_cast<std::uint32_t>(n.rows_of_page);
      const std::uint32_t column = (of_page & (of_page - 1)) == 0
                                       ? narrow >> (31 - __clz(static_cast<int>(of_page)))
                                       : narrow / of_page;
      AS_DEVICE_CHECK(column < p.table.shape[1]);
      found.page = static_cast<std::uint32_t>(*at<std::int32_t>(p.table, request, column));
      found.row = narrow - column * of_page;
    } else {
      found.page = static_cast<std::uint32_t>(*at<std::int32_t>(p.table, request)) + narrow;
    }
    AS_DEVICE_CHECK(I64{found.page} * n.rows_of_page + found.row < n.rows_total);
    return found;
  }
  __device__ __forceinline__ CodedRow value_row(I64 request, I64 row, I64 head) const {
    const tiles::RowPlace at = place(request, row);
    const I64 slot = I64{at.page} * n.rows_of_page + at.row;
    const cpu::HeadScale s = read_scale(n.v_codes, slot, head);
    return {n.v_codes.base + codes_at(n.v_codes, slot, head), s.zero, s.scale - s.scale,
            n.v_codes.code};
  }
};

namespace {

tiles::Fit fit_of(const as_paged_attention_params& p) {
  return tiles::fit_of<true>(std::max(p.q.shape[2], p.o.shape[2]));
}

}  // namespace

I64 prefill_tokens_of_codes(const as_paged_attention_params& p, const Numbers& n, const Gpu& gpu) {
  return tokens_of_tile(p, n, fit_of(p), gpu);
}

int prefill_codes(const as_paged_attention_params& p, const Numbers& n, I64 tokens, float* parts,
                  const Others& others, const Launch& launch) {
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  const cudaError_t code = cudaMemsetAsync(others.list, 0, sizeof(*others.list), stream);
  if (code != cudaSuccess) return code;
  const CodesOp op{{p, n, n.group, tokens, parts, others}};
  const auto launch_for = [&]<int kDims> {
    return tiles::launch_tiles<tiles::Shape<kDims, false, true>>(
        op, (p.q.shape[0] + tokens - 1) / tokens, as_cache_heads(&p.k_cache), n.splits,
        CUtensorMap{}, CUtensorMap{}, launch);
  };
  switch (fit_of(p).dims) {
    case 64:
      return launch_for.template operator()<64>();
    case 128:
      return launch_for.template operator()<128>();
    default:
      return launch_for.template operator()<256>();
  }
}

}  // namespace attnscope::cuda::paged
