from tests.models.torchvision_operators import declare_operators

# Before the test modules are imported, because they import timm and transformers.
declare_operators()
