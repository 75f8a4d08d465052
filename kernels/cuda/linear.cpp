// linear (all projections) and grouped_linear (wo_a): of a few tokens by a kernel of our own, else
// by the library where it is there and able. A projection in FP8 quantises its inputs into the
// workspace first; those of wo_a are codes already.
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/helper_ops.h"
#include "kernels/cuda/linear_fp8.h"
#include "kernels/cuda/ops.h"

namespace attnscope::cuda {
namespace {

Product product_of(const as_linear_params& p) {
  Product m{};
  m.x = p.x.data;
  m.weight = p.weight.data;
  m.y = p.y.data;
  m.rows = p.x.shape[0];
  m.in = p.weight.shape[1];
  m.out = p.weight.shape[0];
  m.batches = 1;
  m.x_stride = p.x.stride[0];
  m.weight_stride = p.weight.stride[0];
  m.y_stride = p.y.stride[0];
  m.wide = p.y.dtype == AS_F32;
  return m;
}

Product product_of(const as_grouped_linear_params& p) {
  Product m{};
  m.x = p.x.data;
  m.weight = p.weight.data;
  m.y = p.y.data;
  m.rows = p.x.shape[0];
  m.in = p.weight.shape[2];
  m.out = p.weight.shape[1];
  m.batches = p.weight.shape[0];
  m.x_stride = p.x.stride[0];
  m.x_batch = p.x.stride[1];
  m.weight_stride = p.weight.stride[1];
  m.weight_batch = p.weight.stride[0];
  m.y_stride = p.y.stride[0];
  m.y_batch = p.y.stride[1];
  return m;
}

// The inputs' codes and scales, at the start of the workspace.
struct Quantised {
  explicit Quantised(const as_linear_params& p, unsigned char* workspace)
      : rows(p.x.shape[0]), blocks(p.x.shape[1] / kFp8Block), codes(workspace) {
    scales = reinterpret_cast<float*>(workspace + aligned(rows * p.x.shape[1]));
  }
  std::size_t bytes() const {
    return aligned(rows * blocks * kFp8Block) + aligned(rows * blocks * 4);
  }

  std::int64_t rows, blocks;
  unsigned char* codes;  // [rows, in]
  float* scales;         // [in/128, rows]

 private:
  static std::size_t aligned(std::int64_t n) {
    return (static_cast<std::size_t>(n) + 255) / 256 * 256;
  }
};

int run_codes(const as_linear_params& p, const Quantised& x, const Launch& launch) {
  const std::int64_t in = p.x.shape[1];
  as_fp8_linear_params q{};
  q.x = p.x;
  q.x.data = x.codes;
  q.x.dtype = AS_U8;
  q.x.stride[0] = in;
  q.x_scale = p.weight_scale;
  q.x_scale.data = x.scales;
  q.x_scale.shape[0] = x.rows;
  q.x_scale.shape[1] = x.blocks;
  q.x_scale.stride[0] = 1;
  q.x_scale.stride[1] = x.rows;
  q.weight = p.weight;
  q.weight_scale = p.weight_scale;
  q.y = p.y;
  return fp8_linear(q, launch);
}

int run_fp8(const as_linear_params& p, bool by_library, const Launch& launch) {
  const Quantised x(p, launch.workspace);
  if (x.rows == 0 || p.weight.shape[0] == 0) return 0;
  if (const int code = quantise_rows(p.x, x.codes, x.scales, launch); code != 0) return code;
  Product m = product_of(p);
  m.x = x.codes;
  m.x_stride = m.in;
  m.x_scale = x.scales;
  m.weight_scale = static_cast<const float*>(p.weight_scale.data);
  m.weight_scale_stride = p.weight_scale.stride[0];
  Launch rest = launch;
  rest.workspace += x.bytes();
  rest.workspace_bytes -= x.bytes();
  if (by_library && m.in > 0 && library_multiply(m, rest)) return 0;
  return run_codes(p, x, launch);
}

// Of one group, without the axis of groups.
as_tensor of_group(as_tensor t, int axis) {
  for (int i = axis; i < 2; ++i) {
    t.shape[i] = t.shape[i + 1];
    t.stride[i] = t.stride[i + 1];
  }
  t.rank = 2;
  return t;
}

int run_groups(const as_grouped_linear_params& p, const Launch& launch) {
  as_fp8_linear_params first{};
  first.x = of_group(p.x, 1);
  first.x_scale = of_group(p.x_scale, 1);
  first.weight = of_group(p.weight, 0);
  first.weight_scale = of_group(p.weight_scale, 0);
  first.y = of_group(p.y, 1);
  Fp8Groups groups;
  groups.count = p.weight.shape[0];
  groups.x = p.x.stride[1];
  groups.x_scale = p.x_scale.stride[1];
  groups.weight = p.weight.stride[0];
  groups.weight_scale = p.weight_scale.stride[0];
  groups.y = p.y.stride[1];
  return fp8_linear_groups(first, groups, launch);
}

}  // namespace

int project(const Product& m, const Launch& launch) {
  if (m.rows == 0 || m.out == 0 || m.batches == 0) return 0;
  if (can_multiply_few(m)) return multiply_few(m, launch);
  if (m.in > 0 && library_multiply(m, launch)) return 0;
  return multiply(m, launch);
}

std::size_t workspace_bytes(const as_linear_params& p, const Gpu&) {
  const std::size_t inputs = p.weight.dtype == AS_U8 ? Quantised(p, nullptr).bytes() : 0;
  return inputs + library_workspace();
}
std::size_t workspace_bytes(const as_grouped_linear_params&, const Gpu&) {
  return library_workspace();
}

int linear(const as_linear_params& p, const Launch& launch) {
  if (p.weight.dtype == AS_U8) return run_fp8(p, true, launch);
  return project(product_of(p), launch);
}

int linear_plain(const as_linear_params& p, const Launch& launch) {
  if (p.weight.dtype == AS_U8) return run_fp8(p, false, launch);
  return multiply(product_of(p), launch);
}

int grouped_linear(const as_grouped_linear_params& p, const Launch& launch) {
  if (p.weight.dtype == AS_U8) return run_groups(p, launch);
  return project(product_of(p), launch);
}

}  // namespace attnscope::cuda
