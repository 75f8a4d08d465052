// Compile-time settings of Dear ImGui, shared by the library and all that includes it.
#pragma once

// Dense pictures have more vertices in one draw list than 16 bits count.
#define ImDrawIdx unsigned int

#define IMGUI_DISABLE_OBSOLETE_FUNCTIONS
