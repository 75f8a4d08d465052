// Page sizes, worked addresses of token 1000, addresses beyond 32 bits.
#include <sys/mman.h>

#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace layout_test {

TEST(Layout, PageSizes) {
  EXPECT_EQ(as_page_bytes_raw(AS_RECORD_LATENT, 512, 64), 37376);
  EXPECT_EQ(as_page_bytes(AS_RECORD_LATENT, 512, 64), 37440);
  EXPECT_EQ(as_page_bytes_raw(AS_RECORD_LATENT, 512, 2), 1168);
  EXPECT_EQ(as_page_bytes(AS_RECORD_LATENT, 512, 2), 1728);
  EXPECT_EQ(as_page_bytes_raw(AS_RECORD_INDEX_FP8, 128, 64), 8448);
  EXPECT_EQ(as_page_bytes(AS_RECORD_INDEX_FP8, 128, 64), 8640);
  EXPECT_EQ(as_page_bytes_raw(AS_RECORD_INDEX_MXFP4, 128, 64), 4352);
  EXPECT_EQ(as_page_bytes(AS_RECORD_INDEX_MXFP4, 128, 64), 4608);
  EXPECT_EQ(as_page_bytes(AS_RECORD_STATE, 2048, 4), 32832);
  EXPECT_EQ(as_page_bytes(AS_RECORD_STATE, 512, 4), 8640);
  EXPECT_EQ(as_page_bytes(AS_RECORD_STATE, 1024, 8), 32832);
}

TEST(Layout, PlacesOfToken1000) {
  EXPECT_EQ(1000 / 64, 15);  // table column and row in the SWA cache
  EXPECT_EQ(as_payload_offset(AS_RECORD_LATENT, 512, 1000 % 64), 23040);
  EXPECT_EQ(as_scale_offset(AS_RECORD_LATENT, 512, 64, 1000 % 64), 37184);
  const int c4_entry = 1000 / 4;
  EXPECT_EQ(c4_entry / 64, 3);
  EXPECT_EQ(as_payload_offset(AS_RECORD_LATENT, 512, c4_entry % 64), 33408);
  EXPECT_EQ(as_scale_offset(AS_RECORD_LATENT, 512, 64, c4_entry % 64), 37328);
  const int c128_entry = 1000 / 128;
  EXPECT_EQ(c128_entry / 2, 3);
  EXPECT_EQ(as_payload_offset(AS_RECORD_LATENT, 512, c128_entry % 2), 576);
  EXPECT_EQ(as_scale_offset(AS_RECORD_LATENT, 512, 2, c128_entry % 2), 1160);
}

TEST(Layout, AddressesUse64Bits) {
  as_cache cache{};
  cache.record = AS_RECORD_LATENT;
  cache.addressing = AS_PAGED;
  cache.rows_per_block = 64;
  cache.width = 512;
  cache.data.dtype = AS_U8;
  cache.data.stride[0] = 1002240;
  const std::int64_t block = 100000;  // 100 GB into the slab, which is addresses alone
  const std::size_t bytes = 100'001 * std::size_t{1002240};
  void* slab = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(slab, MAP_FAILED);
  cache.data.data = slab;
  const as_row_address row = as_cache_row(&cache, block * 64 + 40);
  const auto base = reinterpret_cast<std::uintptr_t>(cache.data.data);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(row.payload) - base, 100224000000u + 23040u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(row.scales) - base, 100224000000u + 37184u);
  munmap(slab, bytes);
}

TEST(Layout, C128IndexWidth) {
  EXPECT_EQ(as_c128_index_width(1, 1048576), 128);
  EXPECT_EQ(as_c128_index_width(20000, 1048576), 256);
  EXPECT_EQ(as_c128_index_width(1048576, 1048576), 8192);
  EXPECT_EQ(as_c128_index_width(100000, 100000), 896);
}

}  // namespace layout_test
}  // namespace attnscope::kernel_tests
