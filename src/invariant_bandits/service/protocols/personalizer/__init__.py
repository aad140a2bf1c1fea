"""The protocol of Azure AI Personalizer: its clients work when their endpoint points here.

It must not know how events are stored.
"""
